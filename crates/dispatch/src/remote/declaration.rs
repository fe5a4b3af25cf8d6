//! The declaration of a remote activity: its contract, its endpoint, its limits and its credentials.
//!
//! The JSON form is the contract of both the configuration and the API; an error names the field that it is in. Holds
//! references to secrets, never secrets. Knows nothing about connections, nor whether the endpoint may be called: the
//! egress guard decides that.

mod fields;

use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use self::fields::DeclarationFields;
use super::limiter::{CONCURRENCY_MAX, RATE_MAX, RATE_MIN};
use super::secrets::SecretRef;
use crate::contract::{ActivityContract, ContractError};
use crate::declaration::{ActivityCategory, ActivityDeclaration, json_object};
use crate::duration;
use crate::egress_guard::{DenyReason, Scheme, Target};

/// The concurrency limit of an activity that declares none.
pub const CONCURRENCY_DEFAULT: u32 = 64;
const NAME_BYTES_MAX: usize = 256;
/// The longest attempt timeout: an attempt holds a permit all the time.
const ATTEMPT_TIMEOUT_MS_MAX: u128 = 24 * 3_600_000;

/// The encoding of requests and responses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WireFormat {
    /// JSON over HTTP.
    Rest,
    /// Protobuf messages over HTTP.
    Protobuf,
    /// Protobuf messages over gRPC.
    Grpc,
    /// The JSON envelope over HTTP.
    Envelope,
}

impl WireFormat {
    /// All wire formats.
    pub const ALL: [Self; 4] = [Self::Rest, Self::Protobuf, Self::Grpc, Self::Envelope];

    /// The name of the wire format in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Protobuf => "protobuf",
            Self::Grpc => "grpc",
            Self::Envelope => "envelope",
        }
    }

    /// The wire format with this name in JSON.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.as_str() == name)
    }
}

/// How requests are authenticated. Both methods may be combined.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuthDeclaration {
    /// Sent as `authorization: Bearer …`.
    pub bearer: Option<SecretRef>,
    /// Signs every request.
    pub hmac: Option<HmacKey>,
}

/// A key that requests are signed with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HmacKey {
    /// The id by which the receiver finds the key.
    pub key_id: String,
    pub secret: SecretRef,
}

/// The certificates for connections. All are PEM texts.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TlsDeclaration {
    /// The authorities that are trusted for the server, instead of those of the public web.
    pub ca: Option<SecretRef>,
    /// The certificate that this side presents, if the server asks.
    pub client: Option<ClientCertificate>,
}

/// A certificate chain and its key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClientCertificate {
    pub certificate: SecretRef,
    pub key: SecretRef,
}

/// An activity that another service runs.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct RemoteDeclaration {
    /// The part that definitions see.
    pub activity: ActivityDeclaration,
    pub transport: WireFormat,
    /// The URL that is called; for gRPC the URL of the server.
    pub endpoint: String,
    /// The most attempts in progress at once.
    pub concurrency: NonZeroU32,
    /// The most attempts that are started per second.
    pub rate_per_second: Option<f64>,
    /// True if it supports probes for the outcome of an earlier attempt.
    pub probe: bool,
    pub auth: AuthDeclaration,
    pub tls: TlsDeclaration,
}

/// Why a declaration is invalid. Shows fields and rules, not values: a secret may stand where a reference belongs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeclarationError {
    /// A required field is missing.
    #[error("{field} is missing")]
    Missing {
        /// The path of the field, such as `auth.hmac.keyId`.
        field: String,
    },
    /// A field that does not exist.
    #[error("{field} is not a field of a declaration")]
    Unknown { field: String },
    /// A field has an invalid value.
    #[error("{field} must be {expected}")]
    Invalid {
        field: String,
        /// The rule that the value breaks.
        expected: &'static str,
    },
    /// The endpoint may not be called.
    #[error("endpoint: {0}")]
    Endpoint(#[from] DenyReason),
    /// A schema or the attempt timeout is invalid.
    #[error(transparent)]
    Contract(#[from] ContractError),
}

const FIELD_NAMES: [&str; 14] = [
    "name",
    "category",
    "transport",
    "endpoint",
    "input",
    "output",
    "attemptTimeout",
    "retryPolicy",
    "compensation",
    "concurrency",
    "ratePerSecond",
    "probe",
    "auth",
    "tls",
];

impl RemoteDeclaration {
    /// Reads the JSON form, and checks everything that can be checked without a guard or a network.
    pub fn read(value: &Value) -> Result<Self, DeclarationError> {
        let fields = DeclarationFields::of(value, "", &FIELD_NAMES)?;
        let invalid = |field, expected| fields.invalid(field, expected);
        let transport = fields.required_text("transport", "rest, protobuf, grpc or envelope")?;
        let transport = WireFormat::from_name(transport);
        let concurrency = fields.whole_number("concurrency", CONCURRENCY_DEFAULT, CONCURRENCY_MAX);
        let concurrency = concurrency.and_then(NonZeroU32::new);
        let rate_per_second = fields.number("ratePerSecond", RATE_MIN, RATE_MAX)?;
        let declared = Self {
            activity: read_activity(&fields)?,
            transport: transport.ok_or_else(|| invalid("transport", "rest, protobuf, grpc or envelope"))?,
            endpoint: fields.required_text("endpoint", "a URL")?.to_owned(),
            concurrency: concurrency
                .ok_or_else(|| invalid("concurrency", "a whole number from 1 to 10000"))?,
            rate_per_second,
            probe: fields.boolean("probe")?,
            auth: read_auth(&fields)?,
            tls: read_tls(&fields)?,
        };
        declared.check_endpoint(&fields)?;
        // This only checks the schemas: they are compiled again when the activity is registered.
        ActivityContract::new(declared.activity.clone())?;
        Ok(declared)
    }

    /// The JSON form, without the fields that are not declared; `concurrency` is always included.
    pub fn to_json(&self) -> Value {
        let AuthDeclaration { bearer, hmac } = &self.auth;
        let certificate = self.tls.client.as_ref().map(|client| client.certificate.to_json());
        let auth = json_object([
            ("bearer", bearer.as_ref().map(SecretRef::to_json)),
            (
                "hmac",
                hmac.as_ref().map(|hmac| json!({"keyId": hmac.key_id, "secret": hmac.secret.to_json()})),
            ),
        ]);
        let tls = json_object([
            ("ca", self.tls.ca.as_ref().map(SecretRef::to_json)),
            ("certificate", certificate),
            ("key", self.tls.client.as_ref().map(|client| client.key.to_json())),
        ]);
        let nonempty = |fields: Map<String, Value>| Some(fields).filter(|fields| !fields.is_empty());
        let mut fields = self.activity.to_json_fields();
        fields.extend(json_object([
            ("transport", Some(json!(self.transport.as_str()))),
            ("endpoint", Some(json!(self.endpoint))),
            ("concurrency", Some(json!(self.concurrency))),
            ("ratePerSecond", self.rate_per_second.map(Value::from)),
            ("probe", Some(json!(true)).filter(|_| self.probe)),
            ("auth", nonempty(auth).map(Value::Object)),
            ("tls", nonempty(tls).map(Value::Object)),
        ]));
        Value::Object(fields)
    }

    fn check_endpoint(&self, fields: &DeclarationFields<'_>) -> Result<(), DeclarationError> {
        let target = Target::parse(&self.endpoint)?;
        if self.transport == WireFormat::Grpc && target.path_and_query().contains('?') {
            return Err(fields.invalid("endpoint", "the URL of a server, without a query"));
        }
        if self.tls != TlsDeclaration::default() && target.scheme() != Scheme::Https {
            return Err(fields.invalid("tls", "absent where the endpoint is not https"));
        }
        Ok(())
    }
}

fn read_activity(fields: &DeclarationFields<'_>) -> Result<ActivityDeclaration, DeclarationError> {
    let name = fields.required_text("name", "a name of 1 to 256 bytes")?;
    if !is_name(name) {
        return Err(fields.invalid("name", "a name of 1 to 256 bytes"));
    }
    let categories = "database, externalApi, messaging, polling, entity or other";
    let category = ActivityCategory::from_name(fields.required_text("category", categories)?);
    let mut activity =
        ActivityDeclaration::new(name, category.ok_or_else(|| fields.invalid("category", categories))?);
    activity.input = fields.get("input").cloned();
    activity.output = fields.get("output").cloned();
    activity.retry_policy = fields.get("retryPolicy").cloned();
    if activity.retry_policy.as_ref().is_some_and(|policy| !policy.is_object()) {
        return Err(fields.invalid("retryPolicy", "an object"));
    }
    activity.compensation = fields.text("compensation", "the name of an activity")?.map(str::to_owned);
    let durations = "an ISO-8601 duration up to P1D, such as PT30S";
    if let Some(text) = fields.text("attemptTimeout", durations)? {
        let limit = duration::parse(text).map(|limit| limit.as_millis());
        if !limit.is_some_and(|limit| (1..=ATTEMPT_TIMEOUT_MS_MAX).contains(&limit)) {
            return Err(fields.invalid("attemptTimeout", durations));
        }
        activity.attempt_timeout = Some(text.to_owned());
    }
    Ok(activity)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

fn read_auth(fields: &DeclarationFields<'_>) -> Result<AuthDeclaration, DeclarationError> {
    let Some(fields) = fields.object_field("auth", &["bearer", "hmac"])? else {
        return Ok(AuthDeclaration::default());
    };
    let bearer = fields.secret("bearer")?;
    let Some(hmac) = fields.object_field("hmac", &["keyId", "secret"])? else {
        return Ok(AuthDeclaration { bearer, hmac: None });
    };
    let printable = "1 to 128 printable ASCII characters";
    let key_id = hmac.required_text("keyId", printable)?.to_owned();
    if !(1..=128).contains(&key_id.len()) || !key_id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(hmac.invalid("keyId", printable));
    }
    let secret = hmac.secret("secret")?.ok_or_else(|| hmac.missing("secret"))?;
    Ok(AuthDeclaration { bearer, hmac: Some(HmacKey { key_id, secret }) })
}

fn read_tls(fields: &DeclarationFields<'_>) -> Result<TlsDeclaration, DeclarationError> {
    let Some(fields) = fields.object_field("tls", &["ca", "certificate", "key"])? else {
        return Ok(TlsDeclaration::default());
    };
    let client = match (fields.secret("certificate")?, fields.secret("key")?) {
        (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
        (None, None) => None,
        (Some(_), None) => return Err(fields.missing("key")),
        (None, Some(_)) => return Err(fields.missing("certificate")),
    };
    Ok(TlsDeclaration { ca: fields.secret("ca")?, client })
}

impl<'de> Deserialize<'de> for RemoteDeclaration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        // A file may hold many declarations, so the error names the activity.
        Self::read(&value).map_err(|error| match value.get("name").and_then(Value::as_str) {
            Some(name) if is_name(name) => serde::de::Error::custom(format!("activity {name:?}: {error}")),
            _ => serde::de::Error::custom(error),
        })
    }
}

impl Serialize for RemoteDeclaration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

#[cfg(test)]
mod tests;
