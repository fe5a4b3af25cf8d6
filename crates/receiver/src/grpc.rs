//! The gRPC wire: the service of `proto/abide/dispatch/v1`, over the same receiver as all others.

use abide_dispatch::wire::protobuf::v1::activities_server::{Activities, ActivitiesServer};
use abide_dispatch::wire::protobuf::v1::{InvokeRequest, InvokeResponse, ProbeRequest};
use abide_dispatch::wire::{About, BODY_BYTES_MAX, grpc, protobuf};
use abide_store::rows::PrivateRows;
use tonic::{Request as GrpcRequest, Response as GrpcResponse, Status as GrpcStatus};

use crate::receiver::{Receiver, Reply, Request};
use crate::refusals;

/// Where the service is in a router.
pub(crate) const PATH: &str = "/abide.dispatch.v1.Activities/{method}";

/// The service, with its limits.
pub(crate) fn service<S: PrivateRows + 'static>(receiver: Receiver<S>) -> ActivitiesServer<Service<S>> {
    let bytes_max = receiver.0.options.body_bytes_max.min(BODY_BYTES_MAX);
    ActivitiesServer::new(Service(receiver)).max_decoding_message_size(bytes_max)
}

pub(crate) struct Service<S>(Receiver<S>);

#[tonic::async_trait]
impl<S: PrivateRows + 'static> Activities for Service<S> {
    async fn invoke(
        &self,
        request: GrpcRequest<InvokeRequest>,
    ) -> Result<GrpcResponse<InvokeResponse>, GrpcStatus> {
        let metadata = grpc::read_metadata(request.metadata());
        let InvokeRequest { activity, input } = request.into_inner();
        // What is wrong with the metadata is told before anything else is looked at.
        let input = match protobuf::json_of(input) {
            Ok(input) => Some(input),
            Err(_) if metadata.is_err() => None,
            Err(unreadable) => {
                let about = About { execution_id: "", activity: &activity };
                return Err(grpc::write_failure(&refusals::body_malformed(&unreadable), about));
            }
        };
        let called = Request { activity: activity.clone(), metadata, input };
        spelled(self.0.invoke(called).await, &activity)
    }

    async fn probe(
        &self,
        request: GrpcRequest<ProbeRequest>,
    ) -> Result<GrpcResponse<InvokeResponse>, GrpcStatus> {
        let metadata = grpc::read_metadata(request.metadata());
        let ProbeRequest { activity } = request.into_inner();
        let asked = Request { activity: activity.clone(), metadata, input: None };
        spelled(self.0.probe(asked).await, &activity)
    }
}

fn spelled(reply: Reply, activity: &str) -> Result<GrpcResponse<InvokeResponse>, GrpcStatus> {
    match reply.answer {
        Ok(output) => Ok(GrpcResponse::new(protobuf::answer(output))),
        Err(status) => {
            let about = About { execution_id: &reply.execution_id, activity };
            Err(grpc::write_failure(&status, about))
        }
    }
}
