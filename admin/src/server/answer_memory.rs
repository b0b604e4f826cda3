//! The memory of answers that are being sent: a client that reads slowly keeps its answer in memory until the end.
//!
//! It knows nothing of requests. An answer counts until its last byte is written, or its connection has ended.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ApiError;

/// The most memory of all answers, in KiB: twice the largest policy, or some configurations of proxies.
const MOST_KIB: u32 = 128 << 10;

/// The most bytes of an answer that does not count: the number of connections bounds these.
const SMALL: usize = 64 << 10;

/// The memory, in KiB.
#[derive(Debug, Clone)]
pub(super) struct AnswerMemory {
    all: (Arc<Semaphore>, u32),
    /// The part that users of the admin port may have, so that they do not displace operators.
    local: (Arc<Semaphore>, u32),
}

impl Default for AnswerMemory {
    fn default() -> Self {
        Self::new(MOST_KIB)
    }
}

impl AnswerMemory {
    pub(super) fn new(most_kib: u32) -> Self {
        let part = |kib: u32| (Arc::new(Semaphore::new(kib.try_into().unwrap_or(0))), kib);
        Self { all: part(most_kib), local: part(most_kib / 2) }
    }

    /// Counts an answer, for a client of the admin port if `is_local`. An answer above the bound may be the only one.
    pub(super) fn hold(&self, mut bytes: Vec<u8>, is_local: bool) -> Result<Bytes, ApiError> {
        if bytes.len() <= SMALL {
            return Ok(bytes.into());
        }
        bytes.shrink_to_fit();
        let kib = u32::try_from(bytes.len() >> 10).unwrap_or(u32::MAX);
        let local = is_local.then(|| take(&self.local, kib)).transpose()?;
        let all = take(&self.all, kib)?;
        Ok(Bytes::from_owner(HeldAnswer { bytes, _places: (all, local) }))
    }
}

fn take((part, most): &(Arc<Semaphore>, u32), kib: u32) -> Result<OwnedSemaphorePermit, ApiError> {
    let permit = Arc::clone(part).try_acquire_many_owned(kib.min(*most));
    permit.map_err(|_| {
        let mib = most >> 10;
        ApiError::Busy(format!("answers of {mib} MiB are being sent to other clients: try again"))
    })
}

/// An answer with its part of the memory.
struct HeldAnswer {
    bytes: Vec<u8>,
    _places: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

impl AsRef<[u8]> for HeldAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use axum::response::Response;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use ironmesh_listener::{WRITE_LIMIT, WriteDeadline};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::super::connections::{Bounds, serve_stream};
    use super::*;

    const ANSWER: usize = 1 << 20;

    fn answer() -> Vec<u8> {
        vec![b'x'; ANSWER]
    }

    #[test]
    fn answers_are_bounded_and_the_admin_port_has_half() {
        let memory = AnswerMemory::new(4 << 10);
        let hold = |is_local| memory.hold(answer(), is_local);
        let local = [hold(true).unwrap(), hold(true).unwrap()];
        assert!(matches!(hold(true), Err(ApiError::Busy(_))));
        let (third, fourth) = (hold(false).unwrap(), hold(false).unwrap());
        assert!(matches!(hold(false), Err(ApiError::Busy(_))));
        memory.hold(vec![0; SMALL], true).unwrap();
        drop((local, third));
        // Parts of an answer are the whole of it.
        let part = fourth.slice(..1);
        drop(fourth);
        let huge = memory.hold(vec![0; 8 << 20], false);
        assert!(matches!(huge, Err(ApiError::Busy(_))));
        drop(part);
        let alone = memory.hold(vec![0; 8 << 20], false).unwrap();
        assert!(matches!(hold(false), Err(ApiError::Busy(_))));
        drop(alone);
        hold(true).unwrap();
    }

    #[tokio::test]
    async fn answer_counts_until_its_client_has_read_it() {
        let memory = AnswerMemory::new(1 << 10);
        let (own, mut client) = duplex(4096);
        let held = memory.clone();
        let service = service_fn(move |_| {
            let body = Body::from(held.hold(answer(), false).unwrap());
            async { Ok::<_, Infallible>(Response::new(body)) }
        });
        let stream = TokioIo::new(WriteDeadline::new(own, WRITE_LIMIT));
        let serving = tokio::spawn(serve_stream(stream, service, Bounds::PORT));
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        client.read_exact(&mut vec![0; ANSWER / 2]).await.unwrap();
        assert!(matches!(memory.hold(answer(), false), Err(ApiError::Busy(_))));
        client.read_to_end(&mut Vec::new()).await.unwrap();
        serving.await.unwrap();
        memory.hold(answer(), false).unwrap();
    }
}
