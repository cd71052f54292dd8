"""What is read off the engine's parse of a statement."""

import pytest

from loom_common.errors import LoomError, QueryLimit, QueryRejected
from loom_insights.domain.guard import check_form, check_tree, parse_tree

WRAPPER = """SelectWithUnionQuery (children 1)
 ExpressionList (children 1)
  SelectQuery (children 2)
   ExpressionList (children 1)
    Asterisk
   TablesInSelectQuery (children 1)
    TablesInSelectQueryElement (children 1)
     TableExpression (children 1)
      Subquery (children 1)
       SelectWithUnionQuery (children 1)
        ExpressionList (children 1)
         SelectQuery (children {count})
          ExpressionList (children 1)
{shown}
{rest}"""


def wrapped(*shown: str, rest: str = "") -> str:
    lines = "\n".join(" " * 11 + line for line in shown)
    return WRAPPER.format(shown=lines, rest=rest, count=2 if rest else 1).rstrip("\n")


def table(name: str) -> str:
    return f"""          TablesInSelectQuery (children 1)
           TablesInSelectQueryElement (children 1)
            TableExpression (children 1)
             {name}"""


@pytest.mark.parametrize(
    "tree",
    [
        wrapped("Literal UInt64_1"),
        wrapped("Function count (alias n) (children 1)", rest=table("TableIdentifier memory (alias m)")),
        wrapped("Identifier memory_key", rest=table("TableIdentifier loom.memory")),
        wrapped("Asterisk", rest=table("Function numbers (children 1)")),
        wrapped("Literal 'file(\\'x\\') (alias y)' (alias z)"),
    ],
)
def test_a_plain_statement_passes(tree: str) -> None:
    check_tree(tree, "", "loom")


@pytest.mark.parametrize(
    "tree",
    [
        wrapped("Function file (children 1)"),
        wrapped("Function FILE (alias count) (children 1)"),
        wrapped("Asterisk", rest=table("TableIdentifier system.users")),
        wrapped("Asterisk", rest=table("TableIdentifier signing_keys")),
        wrapped("Asterisk", rest=table("TableIdentifier other.memory")),
        wrapped("Asterisk", rest=table("Function url (children 1)")),
        wrapped("Asterisk", rest=table("Function count (children 1)")),
        wrapped("Literal UInt64_1", rest="          Set"),
        wrapped("Asterisk (children 1)", " ColumnsTransformerList (children 1)", "  ColumnsApplyTransformer"),
        wrapped("QueryParameter x:String"),
        wrapped("SomethingNew"),
        wrapped("Identifier a\nFunction file (children 1)"),
        wrapped(
            "Function in (children 1)", " ExpressionList (children 2)", "  Identifier a", "  Identifier system.users"
        ),
        "SelectWithUnionQuery (children 1)\n ExpressionList (children 2)\n  SelectQuery\n  SelectQuery",
        "Explain EXPLAIN (children 1)\n SelectWithUnionQuery",
        "",
    ],
)
def test_a_part_that_is_on_no_list_is_refused(tree: str) -> None:
    with pytest.raises(QueryRejected):
        check_tree(tree, "", "loom")


def test_a_common_table_is_taken_for_its_own_statement_and_no_name_with_a_dot_is() -> None:
    tree = wrapped("Asterisk", rest=table("TableIdentifier t"))
    check_tree(tree, "WITH t AS (SELECT 1) SELECT * FROM t", "loom")
    for formatted in ("SELECT 't AS (' FROM t", "SELECT `WITH t AS (`", "SELECT 1"):
        with pytest.raises(QueryRejected):
            check_tree(tree, formatted, "loom")
    with pytest.raises(QueryRejected):
        check_tree(
            wrapped("Asterisk", rest=table("TableIdentifier system.users")), "WITH system.users AS (SELECT 1)", "loom"
        )


def test_a_parse_is_a_tree_by_its_indents_and_an_odd_one_is_refused() -> None:
    root = parse_tree("A (children 2)\n B x\n  C\n D y (alias z)")
    assert [child.kind for child in root.children] == ["B", "D"]
    assert root.children[1].name == "y"
    for odd in ("A\n  B", "A\nB", " A", "A\n 1", "A\n\n B"):
        with pytest.raises(QueryRejected):
            parse_tree(odd)
    with pytest.raises(QueryLimit):
        parse_tree("A\n" + " B\n" * 30_000)


@pytest.mark.parametrize(
    ("formatted", "passes"),
    [
        ("SELECT 1", True),
        ("WITH 1 AS a SELECT a", True),
        ("SELECT 'PREWHERE'", True),
        ("SELECT `prewhere`", True),
        ("SELECT 1 FROM memory PREWHERE 1", False),
        ("SELECT 'it\\'s' FROM memory prewhere 1", False),
        ("INSERT INTO memory SELECT 1", False),
        ("(SELECT 1)", True),
        ("", False),
    ],
)
def test_only_a_select_without_an_early_filter_is_looked_at_further(formatted: str, passes: bool) -> None:
    if passes:
        check_form(formatted)
        return
    with pytest.raises(LoomError):
        check_form(formatted)


def test_common_tables_are_counted_by_the_product_of_their_reads() -> None:
    reads = wrapped("Asterisk", rest=table("TableIdentifier a (alias p)") + "\n" + table("TableIdentifier a (alias q)"))
    check_tree(reads, "WITH a AS (SELECT 1) SELECT * FROM a AS p, a AS q", "loom")
    names = [f"t{number}" for number in range(10)]
    given = "WITH " + ", ".join(f"{name} AS (SELECT 1)" for name in names) + " SELECT 1"
    once = "\n".join(table(f"TableIdentifier {name}") for name in names)
    check_tree(wrapped("Asterisk", rest=once), given, "loom")
    with pytest.raises(QueryLimit):
        check_tree(wrapped("Asterisk", rest=f"{once}\n{once}"), given, "loom")
