//! A delivery as a request of one wire. Encodings are the contract's own; what no sender would send is put together here.

use abide_dispatch::Metadata;
use abide_dispatch::wire::protobuf::v1::{InvokeRequest, Payload, ProbeRequest};
use abide_dispatch::wire::{self, envelope, grpc, json, protobuf};
use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE, USER_AGENT};
use serde_json::{Number, Value};

use crate::Wire;
use crate::delivery::{Content, Delivery, Oddity, Told};
use crate::exchange::{Manner, Written};
use crate::place::Place;

/// Why a delivery cannot be spelled: the wire has no such thing.
#[derive(Debug)]
pub(crate) struct Unspeakable(pub(crate) String);

/// Spells a delivery to an activity at a place.
pub(crate) fn spell(
    transport: Wire,
    place: &Place,
    activity: &str,
    delivery: &Delivery,
) -> Result<Written, Unspeakable> {
    let named = if let Oddity::Activity(other) = delivery.oddity { other } else { activity };
    let is_probe = delivery.oddity == Oddity::Probe;
    let (content_type, body) = match transport {
        Wire::Rest => (wire::JSON, text(&delivery.content)),
        Wire::Protobuf => (wire::PROTOBUF, message(named, &delivery.content)),
        Wire::Grpc => (grpc::CONTENT_TYPE, framed(named, delivery, is_probe)),
        Wire::Envelope => (wire::ENVELOPE, enveloped(named, delivery)),
    };
    let mut headers = HeaderMap::new();
    for (key, value) in in_headers(transport, &delivery.metadata) {
        let value = HeaderValue::from_bytes(&value);
        let value = value.map_err(|_| Unspeakable(format!("{key} has bytes that no header carries")))?;
        headers.append(HeaderName::from_static(key), value);
    }
    let claimed = if let Oddity::ContentType(other) = delivery.oddity { other } else { content_type };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(claimed));
    headers.insert(USER_AGENT, HeaderValue::from_static("abide-conform"));
    let path = match (transport, delivery.oddity) {
        (Wire::Grpc, Oddity::Probe) => grpc::PROBE.to_owned(),
        (Wire::Grpc, _) => grpc::INVOKE.to_owned(),
        (Wire::Protobuf, Oddity::Activity(other)) => {
            // The message names it; the path follows where it can.
            place.path_of(other).unwrap_or_else(|| place.path().to_owned())
        }
        (_, Oddity::Activity(other)) => {
            let why = "the URL does not end with the activity's name, so no other can be asked for";
            place.path_of(other).ok_or_else(|| Unspeakable(why.to_owned()))?
        }
        _ => place.path().to_owned(),
    };
    let manner = match (transport, delivery.oddity) {
        (Wire::Grpc, _) => Manner::Http2,
        (_, Oddity::TitleCase) => Manner::Http1TitleCase,
        _ => Manner::Http1,
    };
    if transport == Wire::Grpc {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    } else {
        headers.insert(ACCEPT, HeaderValue::from_static(content_type));
        if is_probe {
            headers.insert(wire::PROBE, HeaderValue::from_static("1"));
        }
    }
    Ok(Written { manner, path, headers, body })
}

/// What is told in headers.
fn in_headers(transport: Wire, told: &Told) -> Vec<(&'static str, Vec<u8>)> {
    let of = |metadata: &Metadata| {
        metadata.encode().map(|(key, value)| (key, value.as_bytes().to_vec())).collect()
    };
    match told {
        Told::Proper(metadata) | Told::Disagreeing(_, metadata) => of(metadata),
        Told::Pairs(pairs) if transport != Wire::Envelope => pairs.clone(),
        Told::Nothing | Told::Pairs(_) | Told::Fields(..) | Told::Context(_) => Vec::new(),
    }
}

/// The JSON text of an input, or what is in its place.
fn text(content: &Content) -> Bytes {
    match content {
        Content::Input(input) => json::write(input).into(),
        Content::Text(bytes) | Content::Body(bytes) => bytes.clone(),
    }
}

fn request(activity: &str, content: &Content) -> InvokeRequest {
    match content {
        Content::Input(input) => protobuf::invoke(activity, input),
        Content::Text(data) | Content::Body(data) => {
            let payload = Payload { content_type: wire::JSON.to_owned(), data: data.clone() };
            InvokeRequest { activity: activity.to_owned(), input: Some(payload) }
        }
    }
}

fn message(activity: &str, content: &Content) -> Bytes {
    match content {
        Content::Body(bytes) => bytes.clone(),
        content => protobuf::write(&request(activity, content)).into(),
    }
}

fn framed(activity: &str, delivery: &Delivery, is_probe: bool) -> Bytes {
    if is_probe {
        return grpc::framed(&ProbeRequest { activity: activity.to_owned() });
    }
    grpc::framed(&request(activity, &delivery.content))
}

fn enveloped(activity: &str, delivery: &Delivery) -> Bytes {
    let is_usual = matches!(delivery.oddity, Oddity::Nothing | Oddity::Probe | Oddity::TitleCase);
    match (&delivery.metadata, &delivery.content) {
        (_, Content::Body(bytes)) => bytes.clone(),
        (Told::Proper(metadata) | Told::Context(metadata), Content::Input(input)) if is_usual => {
            let request = envelope::Request { pipeline: "", activity, metadata, input };
            envelope::write_request(&request).into()
        }
        (told, content) => {
            let context = context(told).map(|context| format!(r#","context":{{{context}}}"#));
            let head = format!(
                r#"{{"protocolVersion":{},"control":{{"pipeline":{},"step":{},"operatorId":"abide-conform"{}}},"#,
                Value::from(delivery.version()),
                Value::from(delivery.pipeline()),
                Value::from(activity),
                context.unwrap_or_default(),
            );
            let payload = r#""payload":{"kind":"json","contentType":"application/json","data":"#;
            [head.as_bytes(), payload.as_bytes(), &text(content), b"}}"].concat().into()
        }
    }
}

/// The fields of a context, as JSON has them; none if there is to be none.
fn context(told: &Told) -> Option<String> {
    let of = |metadata: &Metadata| {
        metadata.encode().map(|(key, value)| (key, value.as_bytes().to_vec())).collect::<Vec<_>>()
    };
    let fields = |pairs: &[(&'static str, Vec<u8>)]| {
        let fields = pairs.iter().filter_map(|(key, value)| field(key, value));
        fields.collect::<Vec<_>>()
    };
    let all = match told {
        Told::Nothing => return None,
        Told::Proper(metadata) | Told::Context(metadata) | Told::Disagreeing(metadata, _) => {
            fields(&of(metadata))
        }
        Told::Pairs(pairs) => fields(pairs),
        Told::Fields(odd, metadata) => {
            let mut all = fields(&of(metadata));
            // A field that is given another value takes the place of its own.
            all.retain(|field| !odd.iter().any(|(name, _)| field.starts_with(&format!("\"{name}\":"))));
            all.extend(odd.iter().map(|(name, text)| format!("\"{name}\":{text}")));
            all
        }
    };
    Some(all.join(","))
}

/// A pair as a field: a number where one belongs and JSON can write it, else a text.
fn field(key: &str, value: &[u8]) -> Option<String> {
    let (_, name, is_number) = envelope::FIELDS.into_iter().find(|(named, ..)| *named == key)?;
    let text = String::from_utf8_lossy(value);
    let is_number = is_number && serde_json::from_str::<Number>(&text).is_ok();
    Some(if is_number { format!("\"{name}\":{text}") } else { format!("\"{name}\":{}", Value::from(text)) })
}
