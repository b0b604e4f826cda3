//! In place of `session.rs` where this is built without etcd: there are no credentials, so there is no
//! session.

#![expect(
    clippy::unused_async,
    clippy::needless_pass_by_ref_mut,
    reason = "the same signatures as where there is a session"
)]

use super::error::{EtcdError, SessionError};
use ironmesh_config_settings::EtcdSettings;

pub(super) enum Credentials {}

pub(super) enum Session {}

pub(super) enum Watch {}

#[derive(PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: Vec<u8>,
    pub(super) modified: i64,
}

impl Credentials {
    pub(super) fn read(_: &EtcdSettings) -> Result<Self, EtcdError> {
        Err(EtcdError::NotBuiltIn)
    }
}

impl Session {
    pub(super) async fn open(_: &str, credentials: Credentials) -> Result<Self, SessionError> {
        match credentials {}
    }

    pub(super) async fn get(
        &mut self,
        _: &str,
        _: Option<i64>,
    ) -> Result<(Option<Entry>, i64), SessionError> {
        match *self {}
    }

    pub(super) async fn list(&mut self, _: &str) -> Result<(Vec<Entry>, i64), SessionError> {
        match *self {}
    }

    pub(super) async fn grant(&mut self, _: i64) -> Result<i64, SessionError> {
        match *self {}
    }

    pub(super) async fn keep_alive(&mut self, _: i64) -> Result<(), SessionError> {
        match *self {}
    }

    pub(super) async fn revoke(&mut self, _: i64) -> Result<(), SessionError> {
        match *self {}
    }

    pub(super) async fn put(&mut self, _: &str, _: &[u8], _: i64) -> Result<(), SessionError> {
        match *self {}
    }

    pub(super) async fn put_first(
        &mut self,
        _: &str,
        _: &[u8],
        _: i64,
    ) -> Result<bool, SessionError> {
        match *self {}
    }

    pub(super) async fn put_while(
        &mut self,
        _: (&str, &str),
        _: &str,
        _: &[u8],
        _: i64,
    ) -> Result<bool, SessionError> {
        match *self {}
    }

    pub(super) async fn move_pointer(
        &mut self,
        _: (&str, i64),
        _: &str,
        _: &[u8],
        _: &[String],
    ) -> Result<bool, SessionError> {
        match *self {}
    }

    pub(super) async fn remove(&mut self, _: &str, _: &str) -> Result<(), SessionError> {
        match *self {}
    }

    pub(super) async fn watch(&mut self, _: &str, _: i64) -> Result<Watch, SessionError> {
        match *self {}
    }
}

impl Watch {
    pub(super) async fn told(&mut self) -> bool {
        match *self {}
    }
}
