//! What is told of activities that cannot be declared: by the field that is wrong, where there is one.

use abide_dispatch::ContractError;
use abide_dispatch::remote::DeclarationError;
use abide_runtime::declared::DeclareError;
use abide_workflow::finding::pointer_token;
use abide_workflow::registry::RegistryError;

use super::ApiError;
use crate::catalogue::CatalogueError;

impl From<CatalogueError> for ApiError {
    fn from(error: CatalogueError) -> Self {
        let message = error.to_string();
        match error {
            CatalogueError::OfServer { .. }
            | CatalogueError::Configured { .. }
            | CatalogueError::Needed { .. } => Self::conflict(message),
            CatalogueError::Unknown { .. } => Self::not_found(message),
            CatalogueError::Declaration(error) => Self::invalid(place_of(&error), message),
            CatalogueError::Registry(error) => match error {
                RegistryError::RetryPolicy { .. } => Self::invalid("/retryPolicy", message),
                RegistryError::UnknownCompensation { .. } => Self::invalid("/compensation", message),
                RegistryError::Time { .. } => Self::invalid("/attemptTimeout", message),
                _ => Self::invalid("", message),
            },
            CatalogueError::Configuration(_) | CatalogueError::Partition(_) => Self::internal(&message),
            CatalogueError::Store(error) => match error {
                DeclareError::Busy => Self::unavailable(message),
                DeclareError::TooMany | DeclareError::TooManyVersions => Self::conflict(message),
                DeclareError::Table(_) => Self::internal(&message),
                DeclareError::Store(error) => error.into(),
            },
        }
    }
}

/// Where in a declaration something is wrong.
fn place_of(error: &DeclarationError) -> String {
    match error {
        DeclarationError::Missing { field }
        | DeclarationError::Unknown { field }
        | DeclarationError::Wrong { field, .. } => {
            field.split('.').fold(String::new(), |place, part| format!("{place}/{}", pointer_token(part)))
        }
        DeclarationError::Endpoint(_) => "/endpoint".to_owned(),
        DeclarationError::Contract(ContractError::EmptyName) => "/name".to_owned(),
        DeclarationError::Contract(ContractError::Schema { field, .. }) => format!("/{field}"),
        DeclarationError::Contract(ContractError::AttemptTimeout { .. }) => "/attemptTimeout".to_owned(),
    }
}
