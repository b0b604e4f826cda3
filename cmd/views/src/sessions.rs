//! Logins of browsers: a new link, and a table of links and sessions.

use ironmesh_api::{LoginLink, SessionList, SessionView};
use ironmesh_terminal::table::{age, aligned, relative, remaining};
use jiff::Timestamp;

const HEADINGS: [&str; 6] = ["LOGIN", "STATE", "ROLE", "CREATED", "EXPIRES", "USER"];

/// A link that was created now, for the user who opens it.
pub fn link(link: &LoginLink, now: Timestamp) -> String {
    let mut lines = vec![format!(
        "open this link in a browser within {}; it can be used once, and gives the role {}:",
        remaining(link.expires_at, now),
        link.role
    )];
    for (n, link) in link.links.iter().enumerate() {
        if n == 1 {
            lines.push("or at a different address of the control plane:".to_owned());
        }
        lines.push(format!("  {}", link.expose()));
    }
    lines.join("\n") + "\n"
}

/// The table of links and sessions.
pub fn table(list: &SessionList, now: Timestamp) -> String {
    if list.sessions.is_empty() {
        return "no logins: `ironmesh ui` creates a login link\n".to_owned();
    }
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(list.sessions.iter().map(|session| cells(session, now)));
    aligned(&rows).join("\n") + "\n"
}

fn cells(session: &SessionView, now: Timestamp) -> [String; 6] {
    [
        session.id.to_string(),
        session.state.word().to_owned(),
        session.role.to_string(),
        format!("{} ago", age(session.created_at, now)),
        relative(session.expires_at, now),
        session.user.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::{LoginState, OperatorRole, Secret};

    use super::*;

    #[test]
    fn link_shows_each_address_and_table_each_login() {
        let now = Timestamp::UNIX_EPOCH;
        let made = LoginLink {
            id: "0123456789abcdef".parse().unwrap(),
            role: OperatorRole::Viewer,
            links: ["https://a:1/login#x", "https://b:1/login#x"]
                .map(|text| Secret::new(text.to_owned()))
                .to_vec(),
            expires_at: Timestamp::from_second(300).unwrap(),
        };
        assert_eq!(
            link(&made, now),
            "open this link in a browser within 5m; it can be used once, and gives the role viewer:\n  \
             https://a:1/login#x\nor at a different address of the control plane:\n  https://b:1/login#x\n"
        );
        let session = SessionView {
            id: made.id,
            user: "operator ann".to_owned(),
            role: OperatorRole::Viewer,
            state: LoginState::Session,
            created_at: now,
            used_at: Some(now),
            expires_at: Timestamp::from_second(43_200).unwrap(),
            revoked: None,
        };
        let text = table(&SessionList { sessions: vec![session] }, now);
        assert!(text.ends_with("operator ann\n") && text.contains("in 12h"), "{text}");
        assert!(table(&SessionList::default(), now).starts_with("no logins"));
    }
}
