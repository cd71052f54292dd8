"""`loom.insights.v1.InsightsService`."""

from typing import Final, cast

import grpc
from google.protobuf import struct_pb2

from loom.insights.v1 import insights_pb2 as pb
from loom.insights.v1 import insights_pb2_grpc as pb_grpc
from loom_common import call
from loom_common.errors import InternalError, QueryLimit
from loom_insights.app.analysis import Analysed, Analyses
from loom_insights.app.catalog import Catalog
from loom_insights.domain.analysis import AnswerForm

MAX_VALUES: Final = 100_000
"""Most values of an answer as rows.

Source: chosen. Each is a message of its own; a hundred thousand take a megabyte and a tenth of a second.
"""


class InsightsServicer(pb_grpc.InsightsServiceServicer):
    """Runs statements of callers and tells what they may read."""

    def __init__(self, analyses: Analyses, catalog: Catalog) -> None:
        self._analyses = analyses
        self._catalog = catalog

    async def RunQuery(
        self, request: pb.RunQueryRequest, context: grpc.aio.ServicerContext[pb.RunQueryRequest, pb.RunQueryResponse]
    ) -> pb.RunQueryResponse:
        """Translates, delegates, translates back."""
        claims = call.current().claims
        if claims is None:
            raise InternalError("A statement came without its caller.")
        form = cast(AnswerForm, request.format or "rows")
        analysed = await self._analyses.query(claims, call.scope(), request.namespaces, request.sql, form)
        return analysed_to_proto(analysed)

    async def GetCatalog(
        self,
        request: pb.GetCatalogRequest,
        context: grpc.aio.ServicerContext[pb.GetCatalogRequest, pb.GetCatalogResponse],
    ) -> pb.GetCatalogResponse:
        """Translates, delegates, translates back."""
        return catalog_to_proto(self._catalog)


def analysed_to_proto(analysed: Analysed) -> pb.RunQueryResponse:
    """Returns what came of a statement as the contract shows it.

    Raises:
        QueryLimit: It has more values than one message holds.
    """
    answer = analysed.answer
    if len(answer.rows) * len(answer.columns) > MAX_VALUES:
        raise QueryLimit(
            f"The answer has more than {MAX_VALUES} values. Name fewer columns, take fewer rows with LIMIT, or ask for "
            "`csv` or `arrow`.",
            detail={"limit": "result_values"},
        )
    response = pb.RunQueryResponse(
        columns=[pb.ResultColumn(name=column.name, type=column.type) for column in answer.columns],
        csv=answer.csv,
        arrow=answer.arrow,
        row_count=answer.row_count,
        sql_digest=analysed.digest,
        sql_length=analysed.length_bytes,
        elapsed_ms=round(answer.elapsed_ms, 3),
        namespaces=analysed.namespaces,
    )
    for row in answer.rows:
        _fill(response.rows.add(), row)
    return response


def catalog_to_proto(catalog: Catalog) -> pb.GetCatalogResponse:
    """Returns the catalog as the contract shows it."""
    limits = catalog.limits
    return pb.GetCatalogResponse(
        tables=[
            pb.CatalogTable(
                name=table.name,
                comment=table.comment,
                rows=table.rows,
                columns=[
                    pb.CatalogColumn(name=column.name, type=column.type, comment=column.comment)
                    for column in table.columns
                ],
            )
            for table in catalog.tables
        ],
        notes=catalog.notes,
        functions=catalog.functions,
        limits=pb.CatalogLimits(
            time_s=limits.time_s,
            read_rows=limits.read_rows,
            memory_bytes=limits.memory_bytes,
            result_rows=limits.result_rows,
            result_bytes=limits.result_bytes,
            concurrent_per_org=catalog.concurrent_per_org,
            concurrent=catalog.concurrent,
        ),
    )


def _fill(target: struct_pb2.ListValue, values: object) -> None:
    assert isinstance(values, list), "a row or an array"
    for value in values:
        _set(target.values.add(), value)


def _set(target: struct_pb2.Value, value: object) -> None:
    match value:
        case None:
            target.null_value = struct_pb2.NULL_VALUE
        case bool():
            target.bool_value = value
        case int() | float():
            target.number_value = value
        case str():
            # What no UTF-8 text holds was replaced by the engine; a lone surrogate of an escape was not.
            target.string_value = value.encode("utf-8", "replace").decode()
        case list():
            target.list_value.SetInParent()
            _fill(target.list_value, value)
        case dict():
            target.struct_value.SetInParent()
            for name, item in value.items():
                _set(target.struct_value.fields[str(name)], item)
        case _:
            raise TypeError(f"JSON has no {type(value).__name__}")
