//! A request of a check, independent of the wire: metadata and content, either of which may be invalid on purpose.
//!
//! It does not know how requests are encoded.

use abide_dispatch::Metadata;
use abide_dispatch::wire::envelope;
use bytes::Bytes;
use serde_json::Value;

#[derive(Clone, Debug)]
pub(crate) struct TestRequest {
    pub(crate) metadata: SentMetadata,
    pub(crate) content: RequestContent,
    pub(crate) deviation: Deviation,
}

/// The metadata of a request.
#[derive(Clone, Debug)]
pub(crate) enum SentMetadata {
    /// None of the keys.
    Absent,
    /// As any sender would send it.
    Valid(Metadata),
    /// Raw pairs, sent as headers or, over the envelope wire, only in the context.
    RawPairs(Vec<(&'static str, Vec<u8>)>),
    /// Envelope only: raw JSON texts that replace fields of an otherwise valid context.
    RawContextFields(Vec<(&'static str, &'static str)>, Metadata),
    /// Envelope only: in the context, without headers.
    ContextOnly(Metadata),
    /// Envelope only: the context, then the headers.
    Disagreeing(Metadata, Metadata),
}

/// The content of a request.
#[derive(Clone, Debug)]
pub(crate) enum RequestContent {
    Input(Value),
    /// Bytes in place of the input's JSON text.
    RawInput(Bytes),
    /// Bytes in place of the whole body.
    RawBody(Bytes),
}

/// The one way in which a request differs from an ordinary call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deviation {
    None,
    /// A probe instead of a call.
    Probe,
    /// Header names In-Title-Case.
    TitleCase,
    /// The name of another activity.
    Activity(&'static str),
    /// Another content type than the wire's.
    ContentType(&'static str),
    /// Envelope only: another version.
    Version(&'static str),
    /// Envelope only: another pipeline.
    Pipeline(&'static str),
}

impl TestRequest {
    pub(crate) fn new(metadata: SentMetadata, input: Value) -> Self {
        Self { metadata, content: RequestContent::Input(input), deviation: Deviation::None }
    }

    #[must_use]
    pub(crate) fn with_deviation(self, deviation: Deviation) -> Self {
        Self { deviation, ..self }
    }

    #[must_use]
    pub(crate) fn with_content(self, content: RequestContent) -> Self {
        Self { content, ..self }
    }

    pub(crate) fn envelope_version(&self) -> &'static str {
        if let Deviation::Version(version) = self.deviation { version } else { envelope::VERSION }
    }

    pub(crate) fn envelope_pipeline(&self) -> &'static str {
        if let Deviation::Pipeline(pipeline) = self.deviation { pipeline } else { "" }
    }
}
