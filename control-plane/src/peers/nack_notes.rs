//! The notes about NACKs: what a peer needs to send nothing again to a proxy that moves to it, and to show it to operators.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_api::{NackView, OriginView};
use ironmesh_catalog::Spot;
use ironmesh_xds_compile::origin::Origin;
use ironmesh_xds_wire::{ResourceType, Version};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::readable::readable;
use crate::reconciler::{InactiveResources, NackReport};

/// The most resources of each kind in the note about a proxy, and the most NACKed versions of a control plane.
pub(crate) const MAX_NACKS: usize = 8;
pub(crate) const MAX_VERSIONS: usize = 32;

/// The most bytes of a message in a note.
const MAX_MESSAGE: usize = 512;

/// The resources that are not active in a proxy: empty if all are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProxyNacks {
    /// Since when there are any; none if all are active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
    /// The first [`MAX_NACKS`] that it NACKs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nacked: Vec<NackNote>,
    /// The first [`MAX_NACKS`] that are withheld from it because others NACK them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) withheld: Vec<NackView>,
    /// The first [`MAX_NACKS`] that it NACKed at a different control plane, in versions to which policy at this one does
    /// not compile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) moved: Vec<NackNote>,
}

impl ProxyNacks {
    /// The note about a proxy. `since` is the time if there are any inactive resources.
    pub(crate) fn new(since: Timestamp, inactive: &InactiveResources, moved: &[NackNote]) -> Self {
        let is_any = *inactive != InactiveResources::default();
        Self {
            since: is_any.then_some(since),
            nacked: inactive.nacked.iter().take(MAX_NACKS).map(NackNote::new).collect(),
            withheld: inactive.withheld.iter().take(MAX_NACKS).map(view).collect(),
            moved: moved.iter().take(MAX_NACKS).cloned().collect(),
        }
    }
}

/// The NACK of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NackNote {
    /// What operators see of it.
    #[serde(flatten)]
    pub(crate) view: NackView,
    /// Whether the resource was NACKed alone.
    pub(crate) is_certain: bool,
    /// Whether the proxy keeps an earlier version.
    pub(crate) keeps_earlier: bool,
    /// The fallbacks that it NACKed, too, by their versions.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) nacked_fallbacks: BTreeSet<String>,
}

impl NackNote {
    /// The note about a NACK.
    pub(crate) fn new(report: &NackReport) -> Self {
        let fallbacks = report.versions.iter().filter(|version| **version != report.version);
        Self {
            view: view(report),
            is_certain: report.is_certain,
            keeps_earlier: report.keeps_earlier,
            nacked_fallbacks: fallbacks.map(ToString::to_string).collect(),
        }
    }

    /// The type and name of the resource, and its compiled version; none if this version does not know the type.
    pub(crate) fn resource(&self) -> Option<((ResourceType, Arc<str>), Version)> {
        resource(&self.view.resource_type, &self.view.name, &self.view.version)
    }

    /// All versions that were NACKed.
    pub(crate) fn versions(&self) -> BTreeSet<Version> {
        let all = self.nacked_fallbacks.iter().chain([&self.view.version]);
        all.filter_map(|version| version.parse().ok()).collect()
    }

    /// The policy objects from which the resource was compiled.
    pub(crate) fn origins(&self) -> Vec<Origin> {
        let origin = |origin: &OriginView| Origin {
            object: origin.object.clone(),
            spot: Spot {
                file: origin.file.as_str().into(),
                line: origin.line,
                column: origin.column,
                bytes: (0, 0),
                end_line: origin.line,
                end_column: origin.column,
            },
        };
        self.view.policy.iter().map(origin).collect()
    }
}

/// A version that proxies of some control plane NACK.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NackedVersionNote {
    /// The type of the resource.
    pub(crate) resource_type: String,
    /// The name of the resource.
    pub(crate) name: String,
    /// The version.
    pub(crate) version: String,
    /// How many proxies of the control plane NACK it, for certain and not for a local reason.
    #[serde(default)]
    pub(crate) clients: usize,
    /// From how many of its proxies it is withheld.
    #[serde(default)]
    pub(crate) withheld: usize,
    /// Whether one of its proxies has ACKed it, or has still to answer.
    #[serde(default)]
    pub(crate) is_disputed: bool,
    /// The NACK of one of its proxies.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "readable")]
    pub(crate) first: Option<NackNote>,
}

impl NackedVersionNote {
    /// The type and name of the resource, and the version; none if this version does not know the type.
    pub(crate) fn resource(&self) -> Option<((ResourceType, Arc<str>), Version)> {
        resource(&self.resource_type, &self.name, &self.version)
    }
}

fn resource(
    resource_type: &str,
    name: &str,
    version: &str,
) -> Option<((ResourceType, Arc<str>), Version)> {
    let mut types = ResourceType::ALL.into_iter();
    let resource_type = types.find(|one| one.to_string() == resource_type)?;
    Some(((resource_type, name.into()), version.parse().ok()?))
}

fn view(report: &NackReport) -> NackView {
    let message = &report.message;
    let end = (0..=MAX_MESSAGE).rev().find(|end| message.is_char_boundary(*end));
    let mut view = NackView::from(report);
    view.message.truncate(end.unwrap_or_default());
    view
}
