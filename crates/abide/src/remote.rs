//! A command's way to the server: where it is, how long an answer may take, and what comes of it, for people or for machines.
//!
//! With `--json`, an answer is printed as the interface has it: one document on one line; a list is a line per item.

use std::process::ExitCode;
use std::time::Duration;

use abide_client::{Call, Client, DEFAULT_URL, Pages};
use serde::de::DeserializeOwned;

use crate::commands::exit;
use crate::problem::{Problem, Sought};
use crate::say::say;
use crate::times;

/// Options of every command that talks to a server.
#[derive(clap::Args)]
pub(crate) struct Remote {
    /// Where the server is
    #[arg(long, value_name = "URL", env = "ABIDE_URL", default_value = DEFAULT_URL, help_heading = "Server")]
    pub(crate) url: String,
    /// How long an answer may take, such as 30s or PT30S
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = times::duration, help_heading = "Server")]
    pub(crate) timeout: Duration,
    /// Print JSON for machines: the data as the API has it, on one line; of a list, one line per item
    #[arg(long)]
    pub(crate) json: bool,
}

/// How much of a list.
#[derive(clap::Args)]
pub(crate) struct Extent {
    /// Show so many at most
    #[arg(long, value_name = "N", default_value_t = 50, conflicts_with = "all")]
    limit: usize,
    /// Show all of them
    #[arg(long)]
    all: bool,
}

impl Remote {
    /// The client that the options describe.
    pub(crate) fn client(&self) -> Result<Client, Problem> {
        Ok(Client::new(&self.url)?.with_timeout(self.timeout))
    }

    /// Does a command's work, and tells what went wrong with it.
    pub(crate) fn run(&self, work: impl AsyncFnOnce(&Client) -> Result<u8, Problem>) -> ExitCode {
        self.run_on(Sought::Unnamed, work)
    }

    /// The same, for work on something of this kind that may not be there.
    pub(crate) fn run_on(
        &self,
        sought: Sought,
        work: impl AsyncFnOnce(&Client) -> Result<u8, Problem>,
    ) -> ExitCode {
        let done = async {
            let client = self.client()?;
            work(&client).await
        };
        let code = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Problem::System)
            .and_then(|runtime| runtime.block_on(done));
        code.unwrap_or_else(|problem| problem.tell(sought, self.json)).into()
    }

    /// Makes a call and prints its answer.
    pub(crate) async fn answer<T: DeserializeOwned + 'static>(
        &self,
        call: Call<T>,
        for_people: impl FnOnce(&T),
    ) -> Result<u8, Problem> {
        if self.json {
            say!("{}", call.raw().await?);
        } else {
            for_people(&call.await?);
        }
        Ok(exit::OK)
    }

    /// Prints a list: for machines a line per item, as it comes; for people at once, so that columns can be as wide as they must.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        pages: Pages<T>,
        extent: &Extent,
        for_people: impl FnOnce(&[T]),
    ) -> Result<u8, Problem> {
        let limit = if extent.all { usize::MAX } else { extent.limit };
        let pages = pages.page_size(PAGE_ITEMS);
        if self.json {
            let mut pages = pages.raw();
            let mut printed = 0;
            while printed < limit
                && let Some(item) = pages.next().await?
            {
                say!("{item}");
                printed += 1;
            }
            return Ok(exit::OK);
        }
        let mut pages = pages;
        let items = pages.take(limit).await?;
        for_people(&items);
        if items.len() == limit && pages.next().await?.is_some() {
            anstream::eprintln!("abide: there are more; --limit N or --all shows them");
        }
        Ok(exit::OK)
    }
}

/// Items of a page; the most that the interface gives.
const PAGE_ITEMS: u32 = 100;
