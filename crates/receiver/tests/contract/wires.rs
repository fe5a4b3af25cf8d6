//! Sends one call over any wire, in process. Requests are raw, so they may be malformed. Responses have one form for
//! all wires, so they can be compared.

use abide_dispatch::metadata;
use abide_dispatch::wire::protobuf::v1::activities_client::ActivitiesClient;
use abide_dispatch::wire::protobuf::v1::{InvokeRequest, InvokeResponse, Payload, ProbeRequest};
use abide_dispatch::wire::{self, envelope, grpc, json, protobuf};
use abide_dispatch::{Metadata, RpcStatus};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};
use bytes::Bytes;
use http_body_util::BodyExt;
use prost::Message;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tonic::metadata::AsciiMetadataValue;
use tower::ServiceExt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    Rest,
    Protobuf,
    Grpc,
    Envelope,
}

impl Wire {
    pub(crate) const ALL: [Self; 4] = [Self::Rest, Self::Protobuf, Self::Grpc, Self::Envelope];
}

/// A call before it is encoded for a wire.
#[derive(Clone, Debug)]
pub(crate) struct TestCall {
    pub(crate) activity: String,
    pub(crate) metadata: Vec<(&'static str, Vec<u8>)>,
    /// JSON text, unless the test sends something else on purpose.
    pub(crate) input: Bytes,
    pub(crate) probe: bool,
}

/// A response, decoded from any wire.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TestResponse {
    /// The HTTP status; over gRPC that of the code.
    pub(crate) http: u16,
    /// The JSON text of the output, or the failure.
    pub(crate) result: Result<Bytes, RpcStatus>,
}

impl TestResponse {
    pub(crate) fn output(&self) -> Value {
        serde_json::from_slice(self.result.as_ref().unwrap()).unwrap()
    }

    pub(crate) fn failure(&self) -> &RpcStatus {
        self.result.as_ref().expect_err("the call should fail")
    }

    /// Code and reason of a failure.
    pub(crate) fn refusal(&self) -> (&'static str, &str) {
        (self.failure().code.name(), self.failure().reason.as_deref().unwrap_or_default())
    }
}

impl TestCall {
    pub(crate) fn new(activity: &str, metadata: &Metadata, input: &Value) -> Self {
        let metadata = metadata.encode().map(|(key, value)| (key, value.as_bytes().to_vec())).collect();
        Self { activity: activity.to_owned(), metadata, input: json::write(input).into(), probe: false }
    }

    pub(crate) fn probe(self) -> Self {
        Self { probe: true, ..self }
    }

    pub(crate) async fn send_over(&self, wire: Wire, router: &Router) -> TestResponse {
        match wire {
            Wire::Rest => self.rest(router).await,
            Wire::Protobuf => self.protobuf(router).await,
            Wire::Grpc => self.grpc(router).await,
            Wire::Envelope => self.envelope(router).await,
        }
    }

    /// The bytes of a failure, exactly as received.
    pub(crate) async fn raw_failure(&self, wire: Wire, router: &Router) -> Bytes {
        match wire {
            Wire::Rest => self.post(router, wire::JSON, self.input.clone(), self.headers()).await.1,
            Wire::Envelope => self.post(router, wire::ENVELOPE, self.enveloped(), HeaderMap::new()).await.1,
            Wire::Protobuf => {
                let message = self.message().encode_to_vec().into();
                self.post(router, wire::PROTOBUF, message, self.headers()).await.1
            }
            Wire::Grpc => {
                let mut request = tonic::Request::new(self.message());
                self.fill(request.metadata_mut());
                let response = ActivitiesClient::new(router.clone()).invoke(request).await;
                Bytes::copy_from_slice(response.unwrap_err().details())
            }
        }
    }

    async fn rest(&self, router: &Router) -> TestResponse {
        let (http, body) = self.post(router, wire::JSON, self.input.clone(), self.headers()).await;
        let result = if http == 200 { Ok(body) } else { Err(json::read_failure(&body).unwrap()) };
        TestResponse { http, result }
    }

    async fn protobuf(&self, router: &Router) -> TestResponse {
        let message = self.message().encode_to_vec().into();
        let (http, body) = self.post(router, wire::PROTOBUF, message, self.headers()).await;
        let result = if http == 200 {
            Ok(payload(InvokeResponse::decode(body).unwrap()))
        } else {
            Err(protobuf::read_failure(&body).unwrap())
        };
        TestResponse { http, result }
    }

    async fn grpc(&self, router: &Router) -> TestResponse {
        let mut client = ActivitiesClient::new(router.clone());
        let response = if self.probe {
            let mut request = tonic::Request::new(ProbeRequest { activity: self.activity.clone() });
            self.fill(request.metadata_mut());
            client.probe(request).await
        } else {
            let mut request = tonic::Request::new(self.message());
            self.fill(request.metadata_mut());
            client.invoke(request).await
        };
        match response {
            Ok(response) => TestResponse { http: 200, result: Ok(payload(response.into_inner())) },
            Err(status) => {
                let status = grpc::read_failure(&status);
                TestResponse { http: status.code.http_status(), result: Err(status) }
            }
        }
    }

    async fn envelope(&self, router: &Router) -> TestResponse {
        let context = self.context();
        let mut headers = HeaderMap::new();
        if self.probe {
            headers.insert(wire::PROBE_HEADER, HeaderValue::from_static("1"));
        }
        let (http, body) = self.post(router, wire::ENVELOPE, self.enveloped(), headers).await;
        if http != 200 {
            return TestResponse { http, result: Err(json::read_failure(&body).unwrap()) };
        }
        let response: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(response["protocolVersion"], envelope::VERSION);
        let sent_context: Value = serde_json::from_str(&context).unwrap();
        let expected = json!({"pipeline": "p", "step": "s", "operatorId": "o", "context": sent_context});
        let mut control = response["control"].clone();
        if sent_context.is_null() {
            control["context"] = Value::Null;
        }
        assert_eq!(control, expected, "the response repeats the control block");
        TestResponse { http, result: Ok(data(&body)) }
    }

    fn enveloped(&self) -> Bytes {
        let control =
            format!(r#"{{"pipeline":"p","step":"s","operatorId":"o","context":{}}}"#, self.context());
        let head = format!(
            r#"{{"protocolVersion":"tpf.envelope.v1","control":{control},"payload":{{"kind":"json","data":"#
        );
        [head.as_bytes(), &self.input, b"}}"].concat().into()
    }

    /// Posts a body, and checks the content type of the response.
    async fn post(
        &self,
        router: &Router,
        content_type: &'static str,
        body: Bytes,
        mut headers: HeaderMap,
    ) -> (u16, Bytes) {
        headers.insert("content-type", HeaderValue::from_static(content_type));
        let mut request =
            Request::post(format!("/activities/{}", self.activity)).body(Body::from(body)).unwrap();
        *request.headers_mut() = headers;
        let response = router.clone().oneshot(request).await.unwrap();
        let http = response.status().as_u16();
        let expected = match content_type {
            wire::ENVELOPE if http != 200 => wire::JSON,
            other => other,
        };
        assert_eq!(response.headers()["content-type"], expected);
        (http, response.into_body().collect().await.unwrap().to_bytes())
    }

    fn message(&self) -> InvokeRequest {
        let data = Payload { content_type: wire::JSON.to_owned(), data: self.input.clone() };
        InvokeRequest { activity: self.activity.clone(), input: Some(data) }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (key, value) in &self.metadata {
            headers.append(HeaderName::from_static(key), HeaderValue::from_bytes(value).unwrap());
        }
        if self.probe {
            headers.insert(wire::PROBE_HEADER, HeaderValue::from_static("1"));
        }
        headers
    }

    fn fill(&self, map: &mut tonic::metadata::MetadataMap) {
        for (key, value) in &self.metadata {
            map.append(*key, AsciiMetadataValue::try_from(value.as_slice()).unwrap());
        }
    }

    /// The context as JSON text, which may have a field twice.
    fn context(&self) -> String {
        if self.metadata.is_empty() {
            return "null".to_owned();
        }
        let fields = self.metadata.iter().map(|(key, value)| {
            let (name, is_number) = match *key {
                metadata::CORRELATION_ID => ("correlationId", false),
                metadata::EXECUTION_ID => ("executionId", false),
                metadata::IDEMPOTENCY_KEY => ("idempotencyKey", false),
                metadata::RETRY_ATTEMPT => ("retryAttempt", true),
                metadata::DEADLINE => ("deadlineEpochMs", true),
                metadata::DISPATCHED_AT => ("dispatchTsEpochMs", true),
                metadata::PARENT_ITEM_ID => ("parentItemId", false),
                other => (other, false),
            };
            let text = String::from_utf8_lossy(value);
            let is_literal = is_number && serde_json::from_str::<serde_json::Number>(&text).is_ok();
            let value = if is_literal { text.into_owned() } else { Value::from(text).to_string() };
            format!("\"{name}\":{value}")
        });
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    }
}

fn payload(response: InvokeResponse) -> Bytes {
    let payload = response.output.unwrap();
    assert_eq!(payload.content_type, wire::JSON);
    payload.data
}

/// The bytes of an envelope's data, exactly as received.
fn data(body: &[u8]) -> Bytes {
    #[derive(serde::Deserialize)]
    struct Envelope<'e> {
        #[serde(borrow)]
        payload: Payload<'e>,
    }
    #[derive(serde::Deserialize)]
    struct Payload<'e> {
        #[serde(borrow)]
        data: &'e RawValue,
    }
    let envelope: Envelope<'_> = serde_json::from_slice(body).unwrap();
    Bytes::copy_from_slice(envelope.payload.data.get().as_bytes())
}
