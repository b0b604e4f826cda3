//! Tokens, and the services of enrolled proxies, as operators create and change them.

use ironmesh_admin::ApiError;
use ironmesh_api::{
    ChangedServices, CreatedToken, CreatedTokens, MAX_TOKEN_TTL, MAX_TOKENS, RevokeTokenRequest,
    ServicesRequest, TokenList, TokenMisuseView, TokenRequest, TokenUseView, TokenView,
};
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{IpRange, JoinToken, Revocation, ServiceName, TokenId, UnknownFields};
use ironmesh_cert::{BearerToken, TokenUsage};
use ironmesh_enrollment::CaHash;
use jiff::{SignedDuration, Timestamp};

use super::{RunningControlPlane, check_lines};
use crate::enrollment::{check_address, check_known_as, check_services};
use crate::sidecars;

impl RunningControlPlane {
    /// Creates the tokens of a request. Blocks on the store.
    pub(super) fn new_tokens(&self, request: &TokenRequest) -> Result<CreatedTokens, ApiError> {
        self.check_tokens(request).map_err(ApiError::BadRequest)?;
        self.check_authority(request.new_authority)?;
        let driver = sidecars::choose(request.driver.as_ref(), &self.sidecar_class)
            .map_err(|unknown| ApiError::BadRequest(unknown.to_string()))?;
        let now = Timestamp::now();
        let ttl = i64::try_from(request.ttl).unwrap_or(i64::MAX);
        let expires_at = now + SignedDuration::from_secs(ttl);
        let no_random = |_| ApiError::Internal("no random bytes for a token".to_owned());
        let (mut created, mut records) = (Vec::new(), Vec::new());
        for _ in 0..request.count {
            let token = BearerToken::generate(TokenUsage::Join).map_err(no_random)?;
            records.push(JoinToken {
                id: token.id().clone(),
                secret_hash: token.secret_hash(),
                created_at: now,
                expires_at,
                services: request.services.clone(),
                addresses: request.addresses,
                labels: request.labels.clone(),
                locality: request.locality.clone(),
                known_as: request.known_as.clone(),
                machine: request.machine,
                driver: driver.clone(),
                used: None,
                misused: None,
                revoked: None,
                unknown: UnknownFields::default(),
            });
            created.push(CreatedToken { id: token.id().clone(), token: token.text() });
        }
        let internal = |error: &dyn std::error::Error| ApiError::Internal(error.to_string());
        let roots = self.authority.lock().trust_bundle().roots;
        let ca_hashes = CaHash::of_roots(&roots).map_err(|error| internal(&error))?;
        self.tokens.create(&records, now).map_err(|error| ApiError::Internal(chain(&error)))?;
        Ok(CreatedTokens {
            tokens: created,
            expires_at,
            ca_hashes: ca_hashes.iter().map(ToString::to_string).collect(),
            enrollment: self.xds_addresses.of_enrollment(self.enrollment_address),
        })
    }

    fn check_tokens(&self, request: &TokenRequest) -> Result<(), String> {
        if !(1..=MAX_TOKENS).contains(&request.count) {
            return Err(format!("a request creates 1 to {MAX_TOKENS} tokens"));
        }
        if !(1..=MAX_TOKEN_TTL).contains(&request.ttl) {
            let days = MAX_TOKEN_TTL / 86_400;
            return Err(format!("a token can be used for 1 second to {days} days"));
        }
        check_known_as(&request.known_as, request.machine, request.count)?;
        if let Some(range) =
            request.addresses.filter(|range| *range == IpRange::of(range.address()))
        {
            check_address(range.address())?;
        }
        let specification = self.policy.borrow().specification.clone();
        check_services(specification.as_deref(), &request.services, [])
    }

    /// The stored tokens. Blocks on the store.
    pub(super) fn token_list(&self) -> Result<TokenList, ApiError> {
        let tokens = self.tokens.list().map_err(|error| ApiError::Internal(chain(&error)))?;
        let now = Timestamp::now();
        Ok(TokenList { tokens: tokens.iter().map(|token| self.token_view(token, now)).collect() })
    }

    fn token_view(&self, token: &JoinToken, now: Timestamp) -> TokenView {
        let used = token.used.as_ref().map(|used| TokenUseView {
            at: used.at,
            from: used.from,
            proxy: used.proxy,
            name: self.register.get(used.proxy).map(|record| record.display_name()),
        });
        TokenView {
            id: token.id.clone(),
            state: token.state(now).word().to_owned(),
            services: token.services.clone(),
            addresses: token.addresses,
            created_at: token.created_at,
            expires_at: token.expires_at,
            used,
            misused: token.misused.map(|one| TokenMisuseView { at: one.at, from: one.from }),
            revoked: token.revoked.clone().map(Into::into),
        }
    }

    /// Revokes a token. Blocks on the store.
    pub(super) fn withdraw_token(
        &self,
        id: &TokenId,
        request: &RevokeTokenRequest,
    ) -> Result<TokenView, ApiError> {
        check_lines(&[&request.reason])?;
        let now = Timestamp::now();
        let revocation = Revocation::by_operator(now, request.reason.clone());
        let failed = |error: &dyn std::error::Error| ApiError::Internal(error.to_string());
        let revoked = self.tokens.revoke(id, &revocation);
        let revoked = revoked.map_err(|error| ApiError::Internal(chain(&error)))?;
        let token = revoked.ok_or_else(|| {
            ApiError::NotFound(format!("no token `{id}`: see `ironmesh proxy token list`"))
        })?;
        self.tokens.record_high_water().map_err(|error| failed(&error))?;
        Ok(self.token_view(&token, now))
    }

    /// Gives a proxy other services. Blocks on the store.
    pub(super) fn change_services(
        &self,
        id: &str,
        request: &ServicesRequest,
    ) -> Result<ChangedServices, ApiError> {
        let record = self.find(id)?;
        let name = record.display_name();
        if let Some(revocation) = &record.revoked {
            return Err(ApiError::BadRequest(format!("proxy {name} was {revocation}")));
        }
        let specification = self.policy.borrow().specification.clone();
        let services: &[ServiceName] = &request.services;
        check_services(specification.as_deref(), services, []).map_err(ApiError::BadRequest)?;
        self.register
            .set_services(record.id, services)
            .map_err(|error| ApiError::Internal(chain(&error)))?;
        let before = record.services.clone();
        Ok(ChangedServices { id: record.id, name, before, services: services.to_vec() })
    }
}
