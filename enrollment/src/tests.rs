//! Tests of both sides over real sockets, with certificates of a real authority.

mod abuse;
mod azure;
mod enrolling;
mod health;
mod leave;
mod renewal;
mod service_certificates;
mod serving;
mod support;
mod trust;
