import dataclasses
import re

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FieldDescriptor

import loom_protos
from loom.common.v1 import op_pb2
from loom.memory.v1 import memory_pb2, search_pb2
from loom_common.comments import contract_comments, first_sentence
from loom_common.ops import (
    CONTRACT_FILES,
    Citable,
    ContractError,
    OpRole,
    Stability,
    Toolset,
    all_ops,
    method_problems,
    op_by_method,
    public_ops,
    read_ops,
)

DEFAULT_TOOLS = {
    "context_pack",
    "loom_search",
    "memory_ask",
    "memory_brief",
    "memory_conflicts",
    "memory_delete",
    "memory_feedback",
    "memory_get",
    "memory_history",
    "memory_inspect",
    "memory_list",
    "memory_resolve_conflict",
    "memory_restore",
    "memory_set",
    "memory_set_from_messages",
}
WIDE = {
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_SINT64,
    FieldDescriptor.TYPE_FIXED64,
    FieldDescriptor.TYPE_SFIXED64,
}


def loom_files():
    return [file for file in loom_protos.descriptor_set().file if file.package.startswith("loom.")]


def messages_below(*roots):
    seen = {}
    todo = list(roots)
    while todo:
        message = todo.pop()
        if message.full_name not in seen:
            seen[message.full_name] = message
            todo += [field.message_type for field in message.fields if field.message_type is not None]
    return seen.values()


def built_method(**options):
    """Makes the descriptor of a method with the given options on it, in a pool of its own."""
    pool = descriptor_pool.DescriptorPool()
    for module in (descriptor_pb2, op_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="loom.x.v1", syntax="proto3")
    file.dependency.append("loom/common/v1/op.proto")
    request = file.message_type.add(name="Req")
    request.field.add(name="text", number=1, type=9, label=1)
    response = file.message_type.add(name="Res")
    response.field.add(name="hits", number=1, type=9, label=3)
    response.field.add(name="found", number=2, type=8, label=1)
    method = file.service.add(name="XService").method.add(
        name="Do", input_type=".loom.x.v1.Req", output_type=".loom.x.v1.Res"
    )
    if options:
        method.options.Extensions[op_pb2.op].CopyFrom(op_pb2.Op(**options))
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindServiceByName("loom.x.v1.XService").methods[0]


WHOLE = {
    "name": "x.do",
    "role": op_pb2.ROLE_VIEWER,
    "stability": op_pb2.STABILITY_STABLE,
    "citable": op_pb2.CITABLE_NO,
    "narrow": op_pb2.NARROW_SAFE,
}


def test_every_file_that_declares_a_service_is_read():
    declared = {file.name for file in loom_files() if file.service}
    assert declared == {file.name for file in CONTRACT_FILES}


def test_every_rpc_of_the_contract_is_an_operation():
    methods = {
        method.full_name
        for file in CONTRACT_FILES
        for service in file.services_by_name.values()
        for method in service.methods
    }
    assert len(all_ops()) == len(methods)


def test_an_operation_carries_what_its_options_say():
    spec = all_ops()["memory.set"]
    assert spec.method == "/loom.memory.v1.MemoryService/SetMemory"
    assert (spec.owner, spec.role, spec.read_only, spec.idempotent) == ("memory", OpRole.WRITER, False, True)
    assert spec.mcp_name == "memory_set"
    assert spec.request is memory_pb2.SetMemoryRequest.DESCRIPTOR
    assert op_by_method(spec.method) is spec
    assert all_ops()["search.query"].mcp_name == "loom_search"


def test_a_method_outside_of_the_contract_is_no_operation():
    assert op_by_method("/grpc.health.v1.Health/Check") is None


def test_internal_operations_are_not_public():
    assert "llm.complete" in all_ops()
    assert "llm.complete" not in public_ops()


def test_the_default_toolset_is_the_documented_one():
    assert {spec.mcp_name for spec in all_ops().values() if Toolset.DEFAULT in spec.toolsets} == DEFAULT_TOOLS


def test_what_is_hidden_from_mcp_is_only_in_the_toolset_of_the_assistant():
    for spec in all_ops().values():
        if spec.http_only:
            # What needs no token is for those who hold none, and whoever speaks MCP holds one. Turns of conversations
            # are found by the search over everything.
            is_nobodys = spec.role is OpRole.OPEN or spec.name == "conversation.search"
            assert spec.toolsets == (() if is_nobodys else (Toolset.ASSISTANT,))


def test_the_assistant_cannot_ask_itself_and_each_of_its_operations_says_whether_it_may_be_cited():
    assistant = [spec for spec in all_ops().values() if Toolset.ASSISTANT in spec.toolsets]
    assert "assistant.ask" not in {spec.name for spec in assistant}
    assert all(isinstance(spec.citable, Citable) for spec in assistant)


def test_experimental_operations_are_in_no_toolset_but_the_assistants():
    experimental = [spec for spec in all_ops().values() if spec.stability is Stability.EXPERIMENTAL]
    assert {toolset for spec in experimental for toolset in spec.toolsets} == {Toolset.ASSISTANT}


def test_public_messages_hold_no_integers_that_json_cannot_carry():
    roots = [message for spec in public_ops().values() for message in (spec.request, spec.response)]
    wide = [field.full_name for message in messages_below(*roots) for field in message.fields if field.type in WIDE]
    assert wide == []


def test_every_name_of_the_contract_has_a_comment():
    comments = contract_comments()
    missing = []
    for file in loom_files():
        names = [f"{file.package}.{service.name}" for service in file.service]
        names += [f"{file.package}.{s.name}.{m.name}" for s in file.service for m in s.method]
        names += [f"{file.package}.{enum.name}" for enum in file.enum_type]
        names += [f"{file.package}.{enum.name}.{value.name}" for enum in file.enum_type for value in enum.value]
        for message in file.message_type:
            names.append(f"{file.package}.{message.name}")
            names += [f"{file.package}.{message.name}.{field.name}" for field in message.field]
        missing += [name for name in names if not comments.of(name)]
    assert missing == []


def test_comments_of_nested_enums_are_found():
    assert "dropped" in contract_comments().of("loom.common.v1.ForcedArg.Action.ACTION_DROP")
    assert contract_comments().of("loom.common.v1.no_such_name") == ""


def test_a_summary_is_the_first_sentence():
    assert first_sentence("Reads it. A miss is no error.") == "Reads it."
    assert first_sentence("Keeps `a.b` as is, e.g. now. Then more.") == "Keeps `a.b` as is, e.g. now."
    assert all_ops()["memory.get"].summary.endswith(".")
    assert all_ops()["memory.get"].description.startswith(all_ops()["memory.get"].summary)


def test_hits_are_counted_along_their_path_and_found_is_read():
    search = all_ops()["search.query"]
    response = search_pb2.SearchResponse()
    assert search.count_hits(response) == 0
    get = all_ops()["memory.get"]
    assert get.was_found(memory_pb2.GetMemoryResponse(found=True)) is True
    assert get.count_hits(memory_pb2.GetMemoryResponse()) is None
    assert search.was_found(response) is None


def test_complete_options_have_no_problem():
    assert method_problems(built_method(**WHOLE, hits_field="hits", found_field="found")) == []


def test_an_rpc_without_options_is_a_problem():
    assert len(method_problems(built_method())) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"name": "set"},
        {"name": "X.do"},
        {"role": op_pb2.ROLE_UNSPECIFIED},
        {"stability": op_pb2.STABILITY_UNSPECIFIED},
        {"narrow": op_pb2.NARROW_UNSPECIFIED},
        {"citable": op_pb2.CITABLE_UNSPECIFIED},
        {"toolsets": [op_pb2.TOOLSET_UNSPECIFIED]},
        {"role": op_pb2.ROLE_INTERNAL, "toolsets": [op_pb2.TOOLSET_DEFAULT]},
        {"stability": op_pb2.STABILITY_EXPERIMENTAL, "toolsets": [op_pb2.TOOLSET_DEFAULT]},
        {"read_only": True},
        {"read_only": True, "idempotent": True, "keeps_idempotency_key": True},
        {"hits_field": "found"},
        {"hits_field": "a.b"},
        {"found_field": "hits"},
        {"ledger_text_keys": ["nothing"]},
        {"ledger_id_keys": ["nothing"]},
        {"forced_args": [op_pb2.ForcedArg(toolset=1, field="nothing", action=1)]},
        {"forced_args": [op_pb2.ForcedArg(toolset=1, field="text", action=3)]},
        {"forced_args": [op_pb2.ForcedArg(toolset=1, field="text", action=3, value="{")]},
        {"forced_args": [op_pb2.ForcedArg(field="text", action=1)]},
    ],
)
def test_each_gap_in_the_options_is_found(change):
    problems = method_problems(built_method(**{**WHOLE, **change}))
    assert len(problems) == 1
    assert problems[0].startswith("loom.x.v1.XService.Do: ")


def test_a_contract_with_a_name_on_two_rpcs_is_refused():
    with pytest.raises(ContractError):
        read_ops([built_method(**WHOLE), built_method(**WHOLE)])


def test_a_contract_with_a_gap_is_refused():
    with pytest.raises(ContractError):
        read_ops([built_method()])


DEFAULT = re.compile(r"Default: (`?)([^`.\s]+)")


def test_a_field_whose_default_is_not_its_zero_value_can_be_absent():
    wrong = []
    for message in messages_below(*[spec.request for spec in all_ops().values()]):
        for field in message.fields:
            stated = DEFAULT.search(contract_comments().of(field.full_name))
            if stated is None or field.message_type is not None or field.is_repeated:
                continue
            # Words after a text's default tell what its absence means: empty does as well as absent.
            literal = bool(stated[1]) or field.type != FieldDescriptor.TYPE_STRING
            if literal and stated[2] not in ("0", "0.0", "false", "none", "empty") and not field.has_presence:
                wrong.append(field.full_name)
    assert wrong == []


def test_an_operation_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        all_ops()["memory.get"].name = "x"
