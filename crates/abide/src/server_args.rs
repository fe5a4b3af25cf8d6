//! The options and the output of every command that talks to a server. It does not know what a command requests.
//!
//! With `--json`, a response is printed as the API returns it: one document on one line, and a list as one line per
//! item.

use std::process::ExitCode;
use std::time::Duration;

use abide_client::{Client, ClientRequest, DEFAULT_URL, Pages};
use serde::de::DeserializeOwned;

use crate::commands::exit;
use crate::errors::{CliError, ResourceKind};
use crate::output::{errln, outln};
use crate::time_format;

/// Options of every command that talks to a server.
#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    /// The server's address
    #[arg(long, value_name = "URL", env = "ABIDE_URL", default_value = DEFAULT_URL, help_heading = "Server")]
    pub(crate) url: String,
    /// How long a response may take, retries included, such as 30s or PT30S
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time_format::parse_duration, help_heading = "Server")]
    pub(crate) timeout: Duration,
    /// Print JSON: the data as the API returns it, on one line; a list is one line per item
    #[arg(long)]
    pub(crate) json: bool,
}

/// How much of a list is shown.
#[derive(clap::Args)]
pub(crate) struct LimitArgs {
    /// The maximum number of items to show
    #[arg(long, value_name = "N", default_value_t = 50, conflicts_with = "all")]
    limit: usize,
    /// Show all items
    #[arg(long)]
    all: bool,
}

impl ServerArgs {
    /// The client that the options describe.
    pub(crate) fn client(&self) -> Result<Client, CliError> {
        Ok(Client::new(&self.url)?.with_timeout(self.timeout))
    }

    /// Runs a command's work and reports its error.
    pub(crate) fn run(&self, work: impl AsyncFnOnce(&Client) -> Result<u8, CliError>) -> ExitCode {
        self.run_for_resource(ResourceKind::Other, work)
    }

    /// The same for work on a resource that may not exist.
    pub(crate) fn run_for_resource(
        &self,
        resource: ResourceKind,
        work: impl AsyncFnOnce(&Client) -> Result<u8, CliError>,
    ) -> ExitCode {
        let command = async {
            let client = self.client()?;
            work(&client).await
        };
        let code = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(CliError::System)
            .and_then(|runtime| runtime.block_on(command));
        code.unwrap_or_else(|error| error.report(resource, self.json)).into()
    }

    /// Sends a request and prints its response.
    pub(crate) async fn print_response<T: DeserializeOwned + 'static>(
        &self,
        request: ClientRequest<T>,
        print_text: impl FnOnce(&T),
    ) -> Result<u8, CliError> {
        if self.json {
            outln!("{}", request.raw().await?);
        } else {
            print_text(&request.await?);
        }
        Ok(exit::OK)
    }

    /// Prints a list. JSON items are printed as they arrive. Text is printed at the end, when the widths of all columns
    /// are known.
    pub(crate) async fn print_list<T: DeserializeOwned>(
        &self,
        pages: Pages<T>,
        extent: &LimitArgs,
        print_text: impl FnOnce(&[T]),
    ) -> Result<u8, CliError> {
        let limit = if extent.all { usize::MAX } else { extent.limit };
        let pages = pages.page_size(PAGE_SIZE);
        if self.json {
            let mut pages = pages.raw();
            let mut printed = 0;
            while printed < limit
                && let Some(item) = pages.next().await?
            {
                outln!("{item}");
                printed += 1;
            }
            return Ok(exit::OK);
        }
        let mut pages = pages;
        let items = pages.take(limit).await?;
        print_text(&items);
        if items.len() == limit && pages.next().await?.is_some() {
            errln!("abide: there are more; --limit N or --all shows them");
        }
        Ok(exit::OK)
    }
}

/// The largest page that the API returns.
const PAGE_SIZE: u32 = 100;
