//! The gRPC wire: the service of `proto/abide/dispatch/v1`, in front of the same receiver as the HTTP wires.
//!
//! It decodes requests and encodes responses; the receiver decides the result.

use abide_dispatch::wire::protobuf::v1::activities_server::{Activities, ActivitiesServer};
use abide_dispatch::wire::protobuf::v1::{InvokeRequest, InvokeResponse, ProbeRequest};
use abide_dispatch::wire::{FailureContext, REQUEST_BYTES_MAX, grpc, protobuf};
use abide_store::rows::PrivateRows;
use tonic::{Request as GrpcRequest, Response as GrpcResponse, Status as GrpcStatus};

use crate::receiver::{ActivityRequest, ActivityResponse, Receiver};
use crate::refusals;

/// Route of the service.
pub(crate) const PATH: &str = "/abide.dispatch.v1.Activities/{method}";

/// The service, with the limit on message size.
pub(crate) fn service<S: PrivateRows + 'static>(receiver: Receiver<S>) -> ActivitiesServer<GrpcService<S>> {
    let bytes_max = receiver.0.options.body_bytes_max.min(REQUEST_BYTES_MAX);
    ActivitiesServer::new(GrpcService(receiver)).max_decoding_message_size(bytes_max)
}

pub(crate) struct GrpcService<S>(Receiver<S>);

#[tonic::async_trait]
impl<S: PrivateRows + 'static> Activities for GrpcService<S> {
    async fn invoke(
        &self,
        request: GrpcRequest<InvokeRequest>,
    ) -> Result<GrpcResponse<InvokeResponse>, GrpcStatus> {
        let metadata = grpc::read_metadata(request.metadata());
        let InvokeRequest { activity, input } = request.into_inner();
        // Malformed metadata is reported before a malformed input.
        let input = match protobuf::payload_json(input) {
            Ok(input) => Some(input),
            Err(_) if metadata.is_err() => None,
            Err(error) => {
                let about = FailureContext { execution_id: "", activity: &activity };
                return Err(grpc::write_failure(&refusals::body_malformed(&error), about));
            }
        };
        let request = ActivityRequest { activity: activity.clone(), metadata, input };
        encode_response(self.0.invoke(request).await, &activity)
    }

    async fn probe(
        &self,
        request: GrpcRequest<ProbeRequest>,
    ) -> Result<GrpcResponse<InvokeResponse>, GrpcStatus> {
        let metadata = grpc::read_metadata(request.metadata());
        let ProbeRequest { activity } = request.into_inner();
        let request = ActivityRequest { activity: activity.clone(), metadata, input: None };
        encode_response(self.0.probe(request).await, &activity)
    }
}

fn encode_response(
    response: ActivityResponse,
    activity: &str,
) -> Result<GrpcResponse<InvokeResponse>, GrpcStatus> {
    match response.result {
        Ok(output) => Ok(GrpcResponse::new(protobuf::invoke_response(output))),
        Err(status) => {
            let about = FailureContext { execution_id: &response.execution_id, activity };
            Err(grpc::write_failure(&status, about))
        }
    }
}
