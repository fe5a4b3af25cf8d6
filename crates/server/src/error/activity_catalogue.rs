//! Maps errors of activity declarations to API errors, with the invalid field as the target where there is one.

use abide_dispatch::ContractError;
use abide_dispatch::remote::DeclarationError;
use abide_runtime::activity_declarations::DeclareError;
use abide_workflow::finding::pointer_token;
use abide_workflow::registry::RegistryError;

use super::ApiError;
use crate::activity_catalogue::CatalogueError;

impl From<CatalogueError> for ApiError {
    fn from(error: CatalogueError) -> Self {
        let message = error.to_string();
        match error {
            CatalogueError::BuiltIn { .. }
            | CatalogueError::Configured { .. }
            | CatalogueError::NeededAsCompensation { .. } => Self::conflict(message),
            CatalogueError::Unknown { .. } => Self::not_found(message),
            CatalogueError::Declaration(error) => Self::invalid(declaration_pointer(&error), message),
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

/// The JSON pointer to the invalid field of a declaration.
fn declaration_pointer(error: &DeclarationError) -> String {
    match error {
        DeclarationError::Missing { field }
        | DeclarationError::Unknown { field }
        | DeclarationError::Invalid { field, .. } => {
            field.split('.').fold(String::new(), |pointer, part| format!("{pointer}/{}", pointer_token(part)))
        }
        DeclarationError::Endpoint(_) => "/endpoint".to_owned(),
        DeclarationError::Contract(ContractError::EmptyName) => "/name".to_owned(),
        DeclarationError::Contract(ContractError::Schema { field, .. }) => format!("/{field}"),
        DeclarationError::Contract(ContractError::AttemptTimeout { .. }) => "/attemptTimeout".to_owned(),
    }
}
