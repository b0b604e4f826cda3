//! The client's side of the stream of events.

use std::time::Duration;

use http::{Method, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use ironmesh_api::{EVENTS_PATH, EventsQuery, ReceivedEvent};
use serde::de::IgnoredAny;
use tokio::time::timeout;

use super::exchange::decode;
use super::{Client, ClientError, LIMIT, broken};

/// How long the stream may be silent: the control plane sends a comment every 15 s.
const SILENCE: Duration = Duration::from_secs(60);

/// The most bytes of an event.
const MAX_EVENT: usize = 1 << 20;

impl Client {
    /// Reads events until the stream ends, or until `take` returns false. Returns whether the stream ended.
    ///
    /// # Errors
    ///
    /// Fails if the control plane cannot be reached, rejects the request or is silent.
    pub async fn events(
        &self,
        query: &EventsQuery,
        mut take: impl AsyncFnMut(ReceivedEvent) -> bool,
    ) -> Result<bool, ClientError> {
        let query = serde_urlencoded::to_string(query).map_err(broken)?;
        let path = format!("{EVENTS_PATH}?{query}");
        self.probe(LIMIT).await?;
        let slow = self.slow(&Method::GET, EVENTS_PATH, SILENCE);
        let read = async |response: Response<Incoming>| {
            let status = response.status();
            let mut body = response.into_body();
            if !status.is_success() {
                let body = body.collect().await.map_err(broken)?.to_bytes();
                return decode::<IgnoredAny>((status, body)).map(|_| true);
            }
            let mut parser = EventParser::default();
            while let Some(frame) = timeout(SILENCE, body.frame()).await.map_err(&slow)? {
                let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
                for event in parser.events(&data)? {
                    if !take(event).await {
                        return Ok(false);
                    }
                }
            }
            Ok(true)
        };
        self.exchange_by::<(), _>(Method::GET, &path, None, Some(SILENCE), read).await
    }
}

/// The parser of server-sent events (HTML, section 9.2.6), as the control plane writes them: lines end with LF.
#[derive(Debug, Default)]
struct EventParser {
    line: Vec<u8>,
    id: Option<String>,
    event: String,
    data: String,
}

impl EventParser {
    /// The events that these bytes complete.
    fn events(&mut self, bytes: &[u8]) -> Result<Vec<ReceivedEvent>, ClientError> {
        let mut events = Vec::new();
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            if self.line.len() + self.data.len() + part.len() > MAX_EVENT {
                return Err(broken("an event has more than 1 MiB"));
            }
            self.line.extend(part);
            if self.line.last() == Some(&b'\n') {
                let line = std::mem::take(&mut self.line);
                let line = std::str::from_utf8(&line).map_err(broken)?;
                events.extend(self.add(line.trim_end_matches(['\r', '\n']))?);
            }
        }
        Ok(events)
    }

    /// Adds a line, and returns the event that it ends.
    fn add(&mut self, line: &str) -> Result<Option<ReceivedEvent>, ClientError> {
        if line.is_empty() {
            let (id, event) = (self.id.take(), std::mem::take(&mut self.event));
            let data = std::mem::take(&mut self.data);
            if data.is_empty() {
                return Ok(None);
            }
            let data = serde_json::from_str(&data).map_err(broken)?;
            return Ok(Some(ReceivedEvent { id, event, data }));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.event),
            "data" => self.data.push_str(value),
            // Comments, and fields of a newer control plane.
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_the_same_however_they_are_cut() {
        let text = b":\n\nid: 7\nevent: journal\ndata: {\"a\":\"\xc3\xa9\"}\n\nevent: lagged\ndata: {}\n\nid: 8\n";
        let expected = [
            ReceivedEvent {
                id: Some("7".to_owned()),
                event: "journal".to_owned(),
                data: json!({"a": "é"}),
            },
            ReceivedEvent { id: None, event: "lagged".to_owned(), data: json!({}) },
        ];
        for cut in 0..text.len() {
            let (mut parser, (first, second)) = (EventParser::default(), text.split_at(cut));
            let mut events = parser.events(first).unwrap();
            events.extend(parser.events(second).unwrap());
            assert_eq!(events, expected, "cut at {cut}");
        }
    }

    #[test]
    fn endless_line_is_an_error() {
        let mut parser = EventParser::default();
        let mut parts = (0..=MAX_EVENT / 1_000).map(|_| parser.events(&[b'x'; 1_000]));
        assert!(parts.any(|part| part.is_err()));
    }
}
