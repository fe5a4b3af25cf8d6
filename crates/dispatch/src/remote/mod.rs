//! The sending side: activities that other services run.
//!
//! ```text
//!  RemoteDeclaration: what is declared, with references to secrets ─► what is called
//! ```

mod declaration;
pub mod secrets;

pub use declaration::{
    Auth, CONCURRENCY_DEFAULT, ClientCertificate, DeclarationError, Hmac, RemoteDeclaration, Tls, Wire,
};
pub use secrets::{Secret, SecretError, SecretRef, Secrets, SecretsConfig, SystemSecrets};
