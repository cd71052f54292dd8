"""`loom.insights.v1.AnalysisAdminService`, for the operator alone."""

import grpc

from loom.insights.v1 import analysis_pb2 as pb
from loom.insights.v1 import analysis_pb2_grpc as pb_grpc
from loom_common.auth.service_credentials import OPERATOR
from loom_common.call import current
from loom_common.errors import AnalysisUnavailable, AuthInsufficient
from loom_common.resealing import Reseal
from loom_insights.app.availability import Availability
from loom_insights.app.provisioning import Provisioning, ProvisioningRefused
from loom_insights.domain.boundary import BoundaryKind


class AnalysisAdminServicer(pb_grpc.AnalysisAdminServiceServicer):
    """Writes what a server must hold, and seals its key anew; where there is neither it says so."""

    def __init__(
        self, kind: BoundaryKind, availability: Availability, provisioning: Provisioning | None, reseal: Reseal
    ) -> None:
        self._kind = kind
        self._availability = availability
        self._provisioning = provisioning
        self._reseal = reseal

    async def SetUpAnalysis(
        self,
        request: pb.SetUpAnalysisRequest,
        context: grpc.aio.ServicerContext[pb.SetUpAnalysisRequest, pb.SetUpAnalysisResponse],
    ) -> pb.SetUpAnalysisResponse:
        """See the contract."""
        _require_operator()
        if self._provisioning is None:
            return pb.SetUpAnalysisResponse(boundary=self._kind)
        try:
            if request.print:
                return pb.SetUpAnalysisResponse(
                    boundary=self._kind, statements=await self._provisioning.statements_to_run()
                )
            done = await self._provisioning.write(repair=True)
        except ProvisioningRefused as error:
            raise AnalysisUnavailable(f"Nothing was written: {error}.") from None
        await self._availability.check()
        return pb.SetUpAnalysisResponse(boundary=self._kind, written=done.written, stamp=done.stamp, absent=done.absent)

    async def ResealAnalysis(
        self,
        request: pb.ResealAnalysisRequest,
        context: grpc.aio.ServicerContext[pb.ResealAnalysisRequest, pb.ResealAnalysisResponse],
    ) -> pb.ResealAnalysisResponse:
        """See the contract."""
        _require_operator()
        done = await self._reseal.run()
        return pb.ResealAnalysisResponse(
            resealed_count=sum(kind.resealed for kind in done),
            current_count=sum(kind.current for kind in done),
            unopened_count=sum(kind.unopened for kind in done),
        )


def _require_operator() -> None:
    if current().peer_service != OPERATOR:
        raise AuthInsufficient("This is for the operator's own key.", detail={"reason": "internal"})
