//! Lists, page by page: the next page is asked for when the last one is used up.

use std::collections::VecDeque;
use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::address::Path;
use crate::call::Call;
use crate::client::Client;
use crate::error::ClientError;

/// A list that is read as far as it is wanted.
pub struct Pages<T> {
    client: Client,
    path: Path,
    page_size: Option<u32>,
    ready: VecDeque<T>,
    next: Next,
}

/// How the list goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Next {
    First,
    After(String),
    End,
}

/// A page as the server writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    items: Vec<Box<RawValue>>,
    continuation_token: Option<String>,
}

impl<T> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ready = self.ready.len();
        f.debug_struct("Pages").field("path", &self.path).field("ready", &ready).finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> Pages<T> {
    pub(crate) fn new(client: &Client, path: Path) -> Self {
        let (client, ready) = (client.clone(), VecDeque::new());
        Self { client, path, page_size: None, ready, next: Next::First }
    }

    /// The same list with so many items per page, from 1 to 100.
    #[must_use]
    pub fn page_size(self, items: u32) -> Self {
        Self { page_size: Some(items), ..self }
    }

    /// The same list from its beginning, each item as it came.
    #[must_use]
    pub fn raw(self) -> Pages<Box<RawValue>> {
        let Self { client, path, page_size, .. } = self;
        Pages { client, path, page_size, ready: VecDeque::new(), next: Next::First }
    }

    /// The next item; none at the end.
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            if self.next == Next::End {
                return Ok(None);
            }
            self.fetch().await?;
        }
    }

    /// The first items, up to so many.
    pub async fn take(&mut self, items_max: usize) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        while items.len() < items_max
            && let Some(item) = self.next().await?
        {
            items.push(item);
        }
        Ok(items)
    }

    async fn fetch(&mut self) -> Result<(), ClientError> {
        let token = match &self.next {
            Next::After(token) => Some(token.as_str()),
            Next::First | Next::End => None,
        };
        let size = self.page_size.map(|size| size.to_string());
        let path = self.path.clone().query("limit", size.as_deref()).query("continuationToken", token);
        let page: Page = Call::get(&self.client, path).await?;
        let wrong = |reason: String| {
            let server = self.client.server().to_owned();
            ClientError::Unexpected { server, status: 200, reason }
        };
        for item in page.items {
            let item = serde_json::from_str(item.get()).map_err(|error| wrong(error.to_string()))?;
            self.ready.push_back(item);
        }
        let next = page.continuation_token.map_or(Next::End, Next::After);
        // A list that leads back to where it was would never end.
        if next == self.next {
            return Err(wrong("a page leads to itself".to_owned()));
        }
        self.next = next;
        Ok(())
    }
}
