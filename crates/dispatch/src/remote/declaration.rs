//! What is declared of an activity that another service runs: what it promises, where it is, and how much of it may be asked at once.
//!
//! The JSON form is the contract of configuration and API alike; a mistake is told by the field it is in. Holds references to secrets, never
//! secrets. Knows nothing of connections, and not whether the endpoint may be called: that is the guard's to say.

mod fields;

use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use self::fields::Fields;
use super::limits::{CONCURRENCY_MAX, RATE_MAX, RATE_MIN};
use super::secrets::SecretRef;
use crate::contract::{Contract, ContractError};
use crate::declaration::{Category, Declaration, object};
use crate::duration;
use crate::guard::{Denied, Scheme, Target};

/// Deliveries under way to one activity where nothing is declared.
pub const CONCURRENCY_DEFAULT: u32 = 64;
const NAME_BYTES_MAX: usize = 256;
/// The longest attempt: it holds a place all the time.
const ATTEMPT_MS_MAX: u128 = 24 * 3_600_000;

/// How an activity is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wire {
    /// JSON over HTTP.
    Rest,
    /// Protobuf messages over HTTP.
    Protobuf,
    /// gRPC.
    Grpc,
    /// The JSON envelope over HTTP.
    Envelope,
}

impl Wire {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Rest, Self::Protobuf, Self::Grpc, Self::Envelope];

    /// As it is spelled in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Protobuf => "protobuf",
            Self::Grpc => "grpc",
            Self::Envelope => "envelope",
        }
    }

    /// The one that is spelled so in JSON.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.as_str() == name)
    }
}

/// How calls show who they come from. Both may be asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Auth {
    /// Sent as `authorization: Bearer …`.
    pub bearer: Option<SecretRef>,
    /// Every request is signed.
    pub hmac: Option<Hmac>,
}

/// A key to sign with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hmac {
    /// What the receiver calls the key.
    pub key_id: String,
    /// The key.
    pub secret: SecretRef,
}

/// Whom to believe and what to show on connections. All are PEM texts.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tls {
    /// The authorities that may vouch for the server, instead of those of the web.
    pub ca: Option<SecretRef>,
    /// What this side shows, if the server asks.
    pub client: Option<ClientCertificate>,
}

/// A certificate chain and its key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClientCertificate {
    /// The chain.
    pub certificate: SecretRef,
    /// The key.
    pub key: SecretRef,
}

/// An activity that another service runs.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct RemoteDeclaration {
    /// What definitions see of it.
    pub activity: Declaration,
    /// How it is spoken to.
    pub transport: Wire,
    /// Where it is: the URL that is called, or for gRPC the server's.
    pub endpoint: String,
    /// Deliveries under way at once.
    pub concurrency: NonZeroU32,
    /// Deliveries that are begun in a second.
    pub rate_per_second: Option<f64>,
    /// Whether it can be asked what became of a delivery.
    pub probe: bool,
    /// How calls show who they come from.
    pub auth: Auth,
    /// Whom to believe, and what to show.
    pub tls: Tls,
}

/// What is wrong with a declaration. Shows fields and rules, not values: a secret may have been written where a reference belongs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeclarationError {
    /// A field that must be there.
    #[error("{field} is missing")]
    Missing {
        /// Which, such as `auth.hmac.keyId`.
        field: String,
    },
    /// A field that nobody knows.
    #[error("{field} is not a field of a declaration")]
    Unknown {
        /// Which.
        field: String,
    },
    /// A field with something else in it than belongs there.
    #[error("{field} must be {expected}")]
    Wrong {
        /// Which.
        field: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A place that may not be called.
    #[error("endpoint: {0}")]
    Endpoint(#[from] Denied),
    /// A schema, or a limit of time.
    #[error(transparent)]
    Contract(#[from] ContractError),
}

const FIELDS: [&str; 14] = [
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
    /// Reads the JSON form, and checks all that can be checked without asking anybody.
    pub fn read(value: &Value) -> Result<Self, DeclarationError> {
        let fields = Fields::of(value, "", &FIELDS)?;
        let wrong = |field, expected| fields.wrong(field, expected);
        let transport = fields.needed_text("transport", "rest, protobuf, grpc or envelope")?;
        let transport = Wire::from_name(transport);
        let concurrency = fields.whole("concurrency", CONCURRENCY_DEFAULT, CONCURRENCY_MAX);
        let concurrency = concurrency.and_then(NonZeroU32::new);
        let rate_per_second = fields.number("ratePerSecond", RATE_MIN, RATE_MAX)?;
        let declared = Self {
            activity: activity(&fields)?,
            transport: transport.ok_or_else(|| wrong("transport", "rest, protobuf, grpc or envelope"))?,
            endpoint: fields.needed_text("endpoint", "a URL")?.to_owned(),
            concurrency: concurrency.ok_or_else(|| wrong("concurrency", "a whole number from 1 to 10000"))?,
            rate_per_second,
            probe: fields.truth("probe")?,
            auth: auth(&fields)?,
            tls: tls(&fields)?,
        };
        declared.check_endpoint(&fields)?;
        // The schemas are compiled for good when the activity is put to use.
        Contract::new(declared.activity.clone())?;
        Ok(declared)
    }

    /// The JSON form; what is not declared is left out, except how much may be under way.
    pub fn to_json(&self) -> Value {
        let Auth { bearer, hmac } = &self.auth;
        let certificate = self.tls.client.as_ref().map(|client| client.certificate.to_json());
        let auth = object([
            ("bearer", bearer.as_ref().map(SecretRef::to_json)),
            (
                "hmac",
                hmac.as_ref().map(|hmac| json!({"keyId": hmac.key_id, "secret": hmac.secret.to_json()})),
            ),
        ]);
        let tls = object([
            ("ca", self.tls.ca.as_ref().map(SecretRef::to_json)),
            ("certificate", certificate),
            ("key", self.tls.client.as_ref().map(|client| client.key.to_json())),
        ]);
        let nonempty = |fields: Map<String, Value>| Some(fields).filter(|fields| !fields.is_empty());
        let mut fields = self.activity.fields();
        fields.extend(object([
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

    fn check_endpoint(&self, fields: &Fields<'_>) -> Result<(), DeclarationError> {
        let target = Target::read(&self.endpoint)?;
        if self.transport == Wire::Grpc && target.path_and_query().contains('?') {
            return Err(fields.wrong("endpoint", "the URL of a server, without a query"));
        }
        if self.tls != Tls::default() && target.scheme() != Scheme::Https {
            return Err(fields.wrong("tls", "absent where the endpoint is not https"));
        }
        Ok(())
    }
}

fn activity(fields: &Fields<'_>) -> Result<Declaration, DeclarationError> {
    let name = fields.needed_text("name", "a name of 1 to 256 bytes")?;
    if !is_name(name) {
        return Err(fields.wrong("name", "a name of 1 to 256 bytes"));
    }
    let categories = "database, externalApi, messaging, polling, entity or other";
    let category = Category::from_name(fields.needed_text("category", categories)?);
    let mut activity = Declaration::new(name, category.ok_or_else(|| fields.wrong("category", categories))?);
    activity.input = fields.get("input").cloned();
    activity.output = fields.get("output").cloned();
    activity.retry_policy = fields.get("retryPolicy").cloned();
    if activity.retry_policy.as_ref().is_some_and(|policy| !policy.is_object()) {
        return Err(fields.wrong("retryPolicy", "an object"));
    }
    activity.compensation = fields.text("compensation", "the name of an activity")?.map(str::to_owned);
    let limits = "an ISO-8601 duration up to P1D, such as PT30S";
    if let Some(text) = fields.text("attemptTimeout", limits)? {
        let limit = duration::parse(text).map(|limit| limit.as_millis());
        if !limit.is_some_and(|limit| (1..=ATTEMPT_MS_MAX).contains(&limit)) {
            return Err(fields.wrong("attemptTimeout", limits));
        }
        activity.attempt_timeout = Some(text.to_owned());
    }
    Ok(activity)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

fn auth(fields: &Fields<'_>) -> Result<Auth, DeclarationError> {
    let Some(fields) = fields.below("auth", &["bearer", "hmac"])? else { return Ok(Auth::default()) };
    let bearer = fields.secret("bearer")?;
    let Some(hmac) = fields.below("hmac", &["keyId", "secret"])? else {
        return Ok(Auth { bearer, hmac: None });
    };
    let printable = "1 to 128 printable ASCII characters";
    let key_id = hmac.needed_text("keyId", printable)?.to_owned();
    if !(1..=128).contains(&key_id.len()) || !key_id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(hmac.wrong("keyId", printable));
    }
    let secret = hmac.secret("secret")?.ok_or_else(|| hmac.missing("secret"))?;
    Ok(Auth { bearer, hmac: Some(Hmac { key_id, secret }) })
}

fn tls(fields: &Fields<'_>) -> Result<Tls, DeclarationError> {
    let Some(fields) = fields.below("tls", &["ca", "certificate", "key"])? else { return Ok(Tls::default()) };
    let client = match (fields.secret("certificate")?, fields.secret("key")?) {
        (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
        (None, None) => None,
        (Some(_), None) => return Err(fields.missing("key")),
        (None, Some(_)) => return Err(fields.missing("certificate")),
    };
    Ok(Tls { ca: fields.secret("ca")?, client })
}

impl<'de> Deserialize<'de> for RemoteDeclaration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        // Among many in one file a place is not enough to find it by.
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
