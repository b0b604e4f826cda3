//! The upstream traffic settings of one service.

use std::sync::Arc;

use ironmesh_catalog::{
    GlobalHttpLimit, GlobalTcpLimit, HttpConnections, LimitedRoute, LocalHttpLimit,
    LocalitySetting, OutlierDetection, Rate, Service, TcpConnections, UpstreamSettings,
};

/// The effective settings of a service, by its own objects, those of its namespace and those of the mesh.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServiceSettings<'a> {
    settings: &'a UpstreamSettings,
    service: &'a Service,
}

impl<'a> ServiceSettings<'a> {
    pub(super) fn new(settings: &'a UpstreamSettings, service: &'a Service) -> Self {
        Self { settings, service }
    }

    pub(crate) fn tcp(self) -> Option<&'a TcpConnections> {
        self.settings.tcp(self.service)
    }

    pub(crate) fn http(self) -> Option<&'a HttpConnections> {
        self.settings.http(self.service)
    }

    pub(crate) fn outlier_detection(self) -> Option<&'a OutlierDetection> {
        self.settings.outlier_detection(self.service)
    }

    pub(crate) fn locality(self) -> Option<&'a Arc<LocalitySetting>> {
        self.settings.locality(self.service)
    }

    pub(crate) fn local_http(self) -> Option<&'a LocalHttpLimit> {
        self.settings.local_http(self.service)
    }

    pub(crate) fn local_tcp(self) -> Option<Rate> {
        self.settings.local_tcp(self.service)
    }

    pub(crate) fn global_http(self) -> Option<&'a GlobalHttpLimit> {
        self.settings.global_http(self.service)
    }

    pub(crate) fn global_tcp(self) -> Option<&'a GlobalTcpLimit> {
        self.settings.global_tcp(self.service)
    }

    pub(crate) fn http_routes(self) -> &'a [LimitedRoute] {
        self.settings.http_routes(self.service)
    }
}
