//! A small rate limit service (`envoy.service.ratelimit.v3`) that counts descriptors and limits
//! each to a number that the test sets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ironmesh_xds_wire::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit, rate_limit::Unit,
};
use ironmesh_xds_wire::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use ironmesh_xds_wire::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// A rate limit service that runs for as long as this value lives.
#[derive(Debug)]
pub struct RateLimits {
    counts: Counts,
    /// Its own runtime, so that its connections end with it.
    runtime: Option<Runtime>,
}

/// The number of requests by descriptor, such as `shop: of=all user=anna`.
type Counts = Arc<Mutex<BTreeMap<String, u32>>>;

impl RateLimits {
    /// Starts a service that allows each descriptor this many times.
    pub async fn start(address: SocketAddr, limit: u32) -> Self {
        let counts = Counts::default();
        let listener = TcpListener::bind(address).await.unwrap().into_std().unwrap();
        let service = Service { counts: Arc::clone(&counts), limit };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            let server = tonic::transport::Server::builder()
                .add_service(RateLimitServiceServer::new(service))
                .serve_with_incoming(TcpListenerStream::new(listener));
            server.await.unwrap();
        });
        Self { counts, runtime: Some(runtime) }
    }

    /// The number of requests by descriptor.
    pub fn counts(&self) -> BTreeMap<String, u32> {
        self.counts.lock().clone()
    }
}

impl Drop for RateLimits {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct Service {
    counts: Counts,
    limit: u32,
}

#[tonic::async_trait]
impl RateLimitService for Service {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let RateLimitRequest { domain, descriptors, .. } = request.into_inner();
        let mut statuses = Vec::new();
        for descriptor in descriptors {
            let entries = descriptor.entries.iter();
            let words: Vec<_> = entries.map(|one| format!("{}={}", one.key, one.value)).collect();
            let mut counts = self.counts.lock();
            let count = counts.entry(format!("{domain}: {}", words.join(" "))).or_default();
            *count += 1;
            let code = if *count > self.limit { Code::OverLimit } else { Code::Ok };
            let current_limit = RateLimit {
                requests_per_unit: self.limit,
                unit: Unit::Hour.into(),
                ..RateLimit::default()
            };
            statuses.push(DescriptorStatus {
                code: code.into(),
                current_limit: Some(current_limit),
                limit_remaining: self.limit.saturating_sub(*count),
                ..DescriptorStatus::default()
            });
        }
        let is_over = statuses.iter().any(|one| one.code == i32::from(Code::OverLimit));
        let overall = if is_over { Code::OverLimit } else { Code::Ok };
        Ok(Response::new(RateLimitResponse {
            overall_code: overall.into(),
            statuses,
            ..RateLimitResponse::default()
        }))
    }
}
