//! Reads lists page by page: the next page is requested only when all items of the last one have been taken.

use std::collections::VecDeque;
use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::address::ApiPath;
use crate::client::Client;
use crate::error::ClientError;
use crate::request::ClientRequest;

/// A list that is fetched as far as its items are taken.
pub struct Pages<T> {
    client: Client,
    path: ApiPath,
    page_size: Option<u32>,
    buffered: VecDeque<T>,
    cursor: PageCursor,
}

/// The position from which the next page is fetched.
#[derive(Clone, PartialEq, Eq, Debug)]
enum PageCursor {
    First,
    After(String),
    End,
}

/// A page as the server sends it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageBody {
    items: Vec<Box<RawValue>>,
    continuation_token: Option<String>,
}

impl<T> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buffered = self.buffered.len();
        f.debug_struct("Pages").field("path", &self.path).field("buffered", &buffered).finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> Pages<T> {
    pub(crate) fn new(client: &Client, path: ApiPath) -> Self {
        let client = client.clone();
        let buffered = VecDeque::new();
        Self { client, path, page_size: None, buffered, cursor: PageCursor::First }
    }

    /// Sets the number of items per page, from 1 to 100.
    #[must_use]
    pub fn page_size(self, items: u32) -> Self {
        Self { page_size: Some(items), ..self }
    }

    /// The same list from its beginning, with unparsed items.
    #[must_use]
    pub fn raw(self) -> Pages<Box<RawValue>> {
        let Self { client, path, page_size, .. } = self;
        Pages { client, path, page_size, buffered: VecDeque::new(), cursor: PageCursor::First }
    }

    /// The next item, or `None` at the end of the list.
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
        loop {
            if let Some(item) = self.buffered.pop_front() {
                return Ok(Some(item));
            }
            if self.cursor == PageCursor::End {
                return Ok(None);
            }
            self.fetch_page().await?;
        }
    }

    /// Takes up to `items_max` items.
    pub async fn take(&mut self, items_max: usize) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        while items.len() < items_max
            && let Some(item) = self.next().await?
        {
            items.push(item);
        }
        Ok(items)
    }

    async fn fetch_page(&mut self) -> Result<(), ClientError> {
        let token = match &self.cursor {
            PageCursor::After(token) => Some(token.as_str()),
            PageCursor::First | PageCursor::End => None,
        };
        let size = self.page_size.map(|size| size.to_string());
        let path = self.path.clone().query("limit", size.as_deref()).query("continuationToken", token);
        let page: PageBody = ClientRequest::get(&self.client, path).await?;
        let unexpected = |reason: String| {
            let server = self.client.server().to_owned();
            ClientError::UnexpectedResponse { server, status: 200, reason }
        };
        for item in page.items {
            let item = serde_json::from_str(item.get()).map_err(|error| unexpected(error.to_string()))?;
            self.buffered.push_back(item);
        }
        let next = page.continuation_token.map_or(PageCursor::End, PageCursor::After);
        // A list whose token does not advance would never end.
        if next == self.cursor {
            return Err(unexpected("the continuation token did not advance".to_owned()));
        }
        self.cursor = next;
        Ok(())
    }
}
