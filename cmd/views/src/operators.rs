//! Operators and their credentials: a table with a line for each credential.

use ironmesh_api::{CredentialView, OperatorList, OperatorView};
use ironmesh_terminal::table::{age, aligned, relative};
use jiff::Timestamp;

const HEADINGS: [&str; 7] =
    ["OPERATOR", "ROLE", "KIND", "STATE", "ISSUED", "EXPIRES", "CREDENTIAL"];

/// The table, as lines. Below the row of a credential is its revocation.
pub fn table(list: &OperatorList, now: Timestamp) -> Vec<String> {
    let credentials = || {
        list.operators.iter().flat_map(|operator| {
            operator.credentials.iter().map(move |credential| (operator, credential))
        })
    };
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(credentials().map(|(operator, credential)| cells(operator, credential, now)));
    let mut rows = aligned(&rows).into_iter();
    let mut lines: Vec<_> = rows.next().into_iter().collect();
    for (row, (_, credential)) in rows.zip(credentials()) {
        lines.push(row);
        lines.extend(credential.revoked.as_ref().map(|revocation| format!("  {revocation}")));
    }
    lines
}

fn cells(operator: &OperatorView, credential: &CredentialView, now: Timestamp) -> [String; 7] {
    [
        operator.name.to_string(),
        operator.role.to_string(),
        credential.kind.clone(),
        credential.state.clone(),
        format!("{} ago by {}", age(credential.issued_at, now), credential.issued_by),
        relative(credential.expires_at, now),
        credential.id.clone(),
    ]
}

/// What remains of an operator's access after a revocation.
pub fn after_revocation(operator: &OperatorView) -> String {
    let OperatorView { name, role, active, credentials } = operator;
    if !active {
        return format!("operator {name} has no access any more\n");
    }
    let valid = credentials.iter().filter(|credential| credential.state == "valid");
    let ids: Vec<_> = valid.map(|one| format!("{} {}", one.kind, one.id)).collect();
    format!("operator {name} still has the role {role} by {}\n", ids.join(", "))
}

#[cfg(test)]
mod tests {
    use ironmesh_api::RevocationView;
    use ironmesh_catalog::{OperatorRole, Revocation};

    use super::*;

    fn credential(id: &str, state: &str, revoked: Option<RevocationView>) -> CredentialView {
        CredentialView {
            id: id.to_owned(),
            kind: "token".to_owned(),
            state: state.to_owned(),
            issued_at: Timestamp::UNIX_EPOCH,
            expires_at: Timestamp::from_second(7_200).unwrap(),
            issued_by: "root".to_owned(),
            revoked,
        }
    }

    #[test]
    fn table_has_a_line_for_each_credential_and_each_revocation() {
        let at = Timestamp::from_second(1_800).unwrap();
        let revoked = Revocation::by_operator(at, Some("left".to_owned())).into();
        let operator = OperatorView {
            name: "ann".parse().unwrap(),
            role: OperatorRole::Admin,
            active: true,
            credentials: vec![
                credential("a1", "revoked", Some(revoked)),
                credential("b2", "valid", None),
            ],
        };
        assert_eq!(
            after_revocation(&operator),
            "operator ann still has the role admin by token b2\n"
        );
        let list = OperatorList { operators: vec![operator] };
        let lines = table(&list, Timestamp::from_second(3_600).unwrap());
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert!(lines[1].starts_with("ann") && lines[1].contains("revoked"), "{lines:#?}");
        assert!(lines[2].contains("left"), "{lines:#?}");
        assert!(lines[3].contains("1h ago by root") && lines[3].contains("b2"), "{lines:#?}");
    }
}
