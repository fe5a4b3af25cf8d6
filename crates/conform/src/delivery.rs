//! What is sent, whatever the wire: metadata that may be none or wrong, content that may be none, and whether it is only asked about.

use abide_dispatch::Metadata;
use abide_dispatch::wire::envelope;
use bytes::Bytes;
use serde_json::Value;

/// One delivery.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) metadata: Told,
    pub(crate) content: Content,
    pub(crate) oddity: Oddity,
}

/// What is told beside the content.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// None of the keys.
    Nothing,
    /// As any sender tells it.
    Proper(Metadata),
    /// Pairs as they are, in headers or, in an envelope, in its context alone.
    Pairs(Vec<(&'static str, Vec<u8>)>),
    /// In an envelope: fields of the context as they are, JSON texts. Nowhere else is there such a thing.
    Fields(Vec<(&'static str, &'static str)>, Metadata),
    /// In an envelope: the context alone.
    Context(Metadata),
    /// In an envelope: what the context says, and what the headers say.
    Disagreeing(Metadata, Metadata),
}

/// What is delivered.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// An input.
    Input(Value),
    /// Bytes where the JSON text of an input belongs.
    Text(Bytes),
    /// Bytes where the whole body belongs.
    Body(Bytes),
}

/// What is out of the ordinary, of which there is one thing at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Oddity {
    Nothing,
    /// It is only asked about.
    Probe,
    /// Header names In-Title-Case.
    TitleCase,
    /// Another activity is asked for.
    Activity(&'static str),
    /// Another content type is claimed.
    ContentType(&'static str),
    /// In an envelope: another version.
    Version(&'static str),
    /// In an envelope: another pipeline.
    Pipeline(&'static str),
}

impl Delivery {
    pub(crate) fn new(metadata: Told, input: Value) -> Self {
        Self { metadata, content: Content::Input(input), oddity: Oddity::Nothing }
    }

    #[must_use]
    pub(crate) fn with(self, oddity: Oddity) -> Self {
        Self { oddity, ..self }
    }

    #[must_use]
    pub(crate) fn with_content(self, content: Content) -> Self {
        Self { content, ..self }
    }

    /// The version that an envelope claims.
    pub(crate) fn version(&self) -> &'static str {
        if let Oddity::Version(version) = self.oddity { version } else { envelope::VERSION }
    }

    /// The pipeline that an envelope claims.
    pub(crate) fn pipeline(&self) -> &'static str {
        if let Oddity::Pipeline(pipeline) = self.oddity { pipeline } else { "" }
    }
}
