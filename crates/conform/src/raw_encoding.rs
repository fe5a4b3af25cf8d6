//! Encodes a test request for one wire.
//!
//! Valid requests use the encoders of `abide-dispatch`; only requests that no sender would make are built here. This
//! file does not know what a receiver should do with them.

use abide_dispatch::Metadata;
use abide_dispatch::wire::protobuf::v1::{InvokeRequest, Payload, ProbeRequest};
use abide_dispatch::wire::{self, envelope, grpc, json, protobuf};
use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE, USER_AGENT};
use serde_json::{Number, Value};

use crate::WireFormat;
use crate::http_client::{HttpVariant, RawRequest};
use crate::receiver_url::ReceiverUrl;
use crate::test_request::{Deviation, RequestContent, SentMetadata, TestRequest};

/// The wire cannot express the request; the text says why.
#[derive(Debug)]
pub(crate) struct EncodeError(pub(crate) String);

pub(crate) fn encode(
    transport: WireFormat,
    url: &ReceiverUrl,
    activity: &str,
    request: &TestRequest,
) -> Result<RawRequest, EncodeError> {
    let named = if let Deviation::Activity(other) = request.deviation { other } else { activity };
    let is_probe = request.deviation == Deviation::Probe;
    let (content_type, body) = match transport {
        WireFormat::Rest => (wire::JSON, input_text(&request.content)),
        WireFormat::Protobuf => (wire::PROTOBUF, protobuf_body(named, &request.content)),
        WireFormat::Grpc => (grpc::CONTENT_TYPE, grpc_body(named, request, is_probe)),
        WireFormat::Envelope => (wire::ENVELOPE, envelope_body(named, request)),
    };
    let mut headers = HeaderMap::new();
    for (key, value) in header_pairs(transport, &request.metadata) {
        let value = HeaderValue::from_bytes(&value);
        let value = value.map_err(|_| EncodeError(format!("{key} has bytes that a header cannot carry")))?;
        headers.append(HeaderName::from_static(key), value);
    }
    let sent_content_type =
        if let Deviation::ContentType(other) = request.deviation { other } else { content_type };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(sent_content_type));
    headers.insert(USER_AGENT, HeaderValue::from_static("abide-conform"));
    let path = match (transport, request.deviation) {
        (WireFormat::Grpc, Deviation::Probe) => grpc::PROBE_PATH.to_owned(),
        (WireFormat::Grpc, _) => grpc::INVOKE_PATH.to_owned(),
        (WireFormat::Protobuf, Deviation::Activity(other)) => {
            // The message names the activity; the path follows if its form is known.
            url.path_for(other).unwrap_or_else(|| url.path().to_owned())
        }
        (_, Deviation::Activity(other)) => {
            let reason =
                "the URL does not end with the activity's name, so no other activity can be addressed";
            url.path_for(other).ok_or_else(|| EncodeError(reason.to_owned()))?
        }
        _ => url.path().to_owned(),
    };
    let http_variant = match (transport, request.deviation) {
        (WireFormat::Grpc, _) => HttpVariant::Http2,
        (_, Deviation::TitleCase) => HttpVariant::Http1TitleCase,
        _ => HttpVariant::Http1,
    };
    if transport == WireFormat::Grpc {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    } else {
        headers.insert(ACCEPT, HeaderValue::from_static(content_type));
        if is_probe {
            headers.insert(wire::PROBE_HEADER, HeaderValue::from_static("1"));
        }
    }
    Ok(RawRequest { http_variant, path, headers, body })
}

/// The metadata that is sent in headers.
fn header_pairs(transport: WireFormat, metadata: &SentMetadata) -> Vec<(&'static str, Vec<u8>)> {
    let of = |metadata: &Metadata| {
        metadata.encode().map(|(key, value)| (key, value.as_bytes().to_vec())).collect()
    };
    match metadata {
        SentMetadata::Valid(metadata) | SentMetadata::Disagreeing(_, metadata) => of(metadata),
        SentMetadata::RawPairs(pairs) if transport != WireFormat::Envelope => pairs.clone(),
        SentMetadata::Absent
        | SentMetadata::RawPairs(_)
        | SentMetadata::RawContextFields(..)
        | SentMetadata::ContextOnly(_) => Vec::new(),
    }
}

/// The JSON text of the input, or the bytes sent in its place.
fn input_text(content: &RequestContent) -> Bytes {
    match content {
        RequestContent::Input(input) => json::write(input).into(),
        RequestContent::RawInput(bytes) | RequestContent::RawBody(bytes) => bytes.clone(),
    }
}

fn invoke_request(activity: &str, content: &RequestContent) -> InvokeRequest {
    match content {
        RequestContent::Input(input) => protobuf::invoke_request(activity, input),
        RequestContent::RawInput(data) | RequestContent::RawBody(data) => {
            let payload = Payload { content_type: wire::JSON.to_owned(), data: data.clone() };
            InvokeRequest { activity: activity.to_owned(), input: Some(payload) }
        }
    }
}

fn protobuf_body(activity: &str, content: &RequestContent) -> Bytes {
    match content {
        RequestContent::RawBody(bytes) => bytes.clone(),
        content => protobuf::write(&invoke_request(activity, content)).into(),
    }
}

fn grpc_body(activity: &str, request: &TestRequest, is_probe: bool) -> Bytes {
    if is_probe {
        return grpc::encode_frame(&ProbeRequest { activity: activity.to_owned() });
    }
    grpc::encode_frame(&invoke_request(activity, &request.content))
}

fn envelope_body(activity: &str, request: &TestRequest) -> Bytes {
    let is_usual = matches!(request.deviation, Deviation::None | Deviation::Probe | Deviation::TitleCase);
    match (&request.metadata, &request.content) {
        (_, RequestContent::RawBody(bytes)) => bytes.clone(),
        (
            SentMetadata::Valid(metadata) | SentMetadata::ContextOnly(metadata),
            RequestContent::Input(input),
        ) if is_usual => {
            let request = envelope::EnvelopeRequest { pipeline: "", activity, metadata, input };
            envelope::write_request(&request).into()
        }
        (metadata, content) => {
            let context = context_fields(metadata).map(|context| format!(r#","context":{{{context}}}"#));
            let head = format!(
                r#"{{"protocolVersion":{},"control":{{"pipeline":{},"step":{},"operatorId":"abide-conform"{}}},"#,
                Value::from(request.envelope_version()),
                Value::from(request.envelope_pipeline()),
                Value::from(activity),
                context.unwrap_or_default(),
            );
            let payload = r#""payload":{"kind":"json","contentType":"application/json","data":"#;
            [head.as_bytes(), payload.as_bytes(), &input_text(content), b"}}"].concat().into()
        }
    }
}

/// The fields of the envelope's context as JSON text; `None` if the envelope has no context.
fn context_fields(metadata: &SentMetadata) -> Option<String> {
    let of = |metadata: &Metadata| {
        metadata.encode().map(|(key, value)| (key, value.as_bytes().to_vec())).collect::<Vec<_>>()
    };
    let fields = |pairs: &[(&'static str, Vec<u8>)]| {
        let fields = pairs.iter().filter_map(|(key, value)| context_field(key, value));
        fields.collect::<Vec<_>>()
    };
    let all = match metadata {
        SentMetadata::Absent => return None,
        SentMetadata::Valid(metadata)
        | SentMetadata::ContextOnly(metadata)
        | SentMetadata::Disagreeing(metadata, _) => fields(&of(metadata)),
        SentMetadata::RawPairs(pairs) => fields(pairs),
        SentMetadata::RawContextFields(raw, metadata) => {
            let mut all = fields(&of(metadata));
            // A raw field replaces the valid field of the same name.
            all.retain(|field| !raw.iter().any(|(name, _)| field.starts_with(&format!("\"{name}\":"))));
            all.extend(raw.iter().map(|(name, text)| format!("\"{name}\":{text}")));
            all
        }
    };
    Some(all.join(","))
}

/// A pair as a field: a number if the field is one and the value is a JSON number, else a string.
fn context_field(key: &str, value: &[u8]) -> Option<String> {
    let (_, name, is_number) = envelope::CONTEXT_FIELDS.into_iter().find(|(named, ..)| *named == key)?;
    let text = String::from_utf8_lossy(value);
    let is_number = is_number && serde_json::from_str::<Number>(&text).is_ok();
    Some(if is_number { format!("\"{name}\":{text}") } else { format!("\"{name}\":{}", Value::from(text)) })
}
