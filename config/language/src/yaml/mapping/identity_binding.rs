//! IdentityBinding.

use super::made::Made;
use super::{Context, FindingReported, Resource};
use crate::codes;

pub(super) fn read<'a>(
    made: &mut Made<'a>,
    resource: &Resource<'a>,
    has_spec: bool,
    _: &Context<'_, 'a>,
) -> Result<(), FindingReported> {
    let mut spec = resource.spec("an IdentityBinding", has_spec)?;
    let schemes = spec.required("schemes", |value| {
        let mut schemes = value.table("`schemes`")?;
        let labels = schemes.optional("podLabelSelector", |value| {
            let mut selector = value.table("`podLabelSelector`")?;
            made.copy(&mut selector, "matchLabels", "endpoint_labels");
            // Without the condition, the binding would include more identities.
            let expressions = selector.optional("matchExpressions", |value| {
                let message = "`matchExpressions` are not served";
                let finding = value.error(codes::NOT_SERVED, message).label("not served");
                Err::<(), FindingReported>(value.report(finding.help("use `matchLabels`")))
            });
            selector.finish();
            expressions
        });
        made.copy(&mut schemes, "spiffeIdentities", "spiffe_identities");
        made.copy(&mut schemes, "serviceAccount", "service_account");
        schemes.finish();
        labels
    });
    spec.finish();
    schemes.map(|_| ())
}
