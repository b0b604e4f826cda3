//! The table of `ironmesh journal`, for terminals of 80 columns. It has no colors.

use std::fmt::Write as _;

use ironmesh_catalog::text::escape_line;
use ironmesh_catalog::{Actor, JournalEntry, JournalKind, JournalOutcome, JournalSubject};

/// The line above the rows.
pub const HEADER: &str =
    "TIME                  WHO            WHAT         SUBJECT               OUTCOME\n";

/// The widths of the columns that may have to be cut.
const WHO: usize = 13;
const SUBJECT: usize = 20;

/// The digits of a UUID that a row shows for a proxy without a name; the commands accept them in place of all.
const ID_DIGITS: usize = 8;

/// The rows of entries, each followed by an indented line with what its columns lack.
pub fn rows(entries: &[JournalEntry]) -> String {
    entries.iter().map(row).collect()
}

/// The origin of what the owner of the admin socket does there.
const ADMIN_SOCKET: &str = "admin socket";

fn row(entry: &JournalEntry) -> String {
    let (full_who, full_subject) = (who(&entry.who), subject(entry));
    let (who, subject) = (cut(&full_who, WHO), cut(&full_subject, SUBJECT));
    let (outcome, reason) = match &entry.outcome {
        JournalOutcome::Done => ("done", None),
        JournalOutcome::Rejected { reason } => ("rejected", Some(&**reason)),
    };
    let (at, what) = (entry.at, entry.kind);
    let mut text = format!(
        "{at:<20.0}  {who:<WHO$}  {what:<11}  {subject:<SUBJECT$}  {outcome}\n",
        what = what.word()
    );
    // Of the owner of the admin socket, only a session of a browser has an address.
    let is_user = matches!(entry.who, Actor::User { .. });
    let origin = entry.origin.as_ref().filter(|origin| !is_user || *origin != ADMIN_SOCKET);
    let details = [
        (who != full_who).then_some(full_who),
        (subject != full_subject).then_some(full_subject),
        origin.map(|origin| format!("from {origin}")),
        entry.subject.commit.as_ref().map(|commit| format!("commit {commit}")),
        entry.message.clone(),
        reason.map(str::to_owned),
    ];
    let details: Vec<_> = details.into_iter().flatten().collect();
    if !details.is_empty() {
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "  {}", escape_line(&details.join("; ")));
    }
    text
}

fn who(actor: &Actor) -> String {
    match actor {
        Actor::User { name: Some(name), .. } | Actor::Author { name: Some(name) } => {
            escape_line(name).into_owned()
        }
        Actor::User { uid: Some(uid), .. } => format!("uid {uid}"),
        Actor::User { uid: None, .. } | Actor::Author { name: None } => "unknown".to_owned(),
        Actor::Operator { name, .. } => name.to_string(),
        Actor::Machine { token: Some(token), .. } => format!("token {token}"),
        Actor::Machine { vm_id: Some(vm_id), .. } => format!("azure machine {vm_id}"),
        Actor::Machine { token: None, vm_id: None } => "machine".to_owned(),
        Actor::Proxy => "proxy".to_owned(),
        Actor::ControlPlane => "control plane".to_owned(),
    }
}

fn subject(entry: &JournalEntry) -> String {
    let JournalSubject { proxy, name, services, token, account, revision, .. } = &entry.subject;
    let id = || proxy.map(|id| id.to_string().chars().take(ID_DIGITS).collect());
    let name = name.clone().or_else(id);
    let unit = if entry.kind == JournalKind::Export { "records" } else { "×" };
    let count = (entry.count > 1).then(|| format!("{} {unit}", entry.count));
    let services: Vec<_> = services.iter().map(ToString::to_string).collect();
    let services = (!services.is_empty()).then(|| match entry.kind {
        JournalKind::Certificate => format!("proxy {}", services.join(", ")),
        _ => services.join(", "),
    });
    let account = account.as_ref().map(|account| format!("account {account}"));
    let revision = revision.as_ref().map(ToString::to_string);
    let token = token.as_ref().map(|token| format!("token {token}"));
    let parts = [count, name, services, token, account, revision];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return "-".to_owned();
    }
    escape_line(&parts.join(" ")).into_owned()
}

/// The text, shortened to `width` characters.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::ProxyId;
    use jiff::Timestamp;

    use super::*;

    fn entry(kind: JournalKind, who: Actor) -> JournalEntry {
        JournalEntry::new(Timestamp::UNIX_EPOCH, kind, who)
    }

    #[test]
    fn rows_have_80_columns_and_details_follow() {
        let root = Actor::User { uid: Some(0), name: Some("root".to_owned()) };
        let id: ProxyId = "0a1b2c3d-0000-4000-8000-000000000001".parse().unwrap();
        let subject = JournalSubject {
            proxy: Some(id),
            services: vec!["shop/bookstore".parse().unwrap()],
            ..JournalSubject::default()
        };
        let revoke = JournalEntry {
            origin: Some("admin socket".to_owned()),
            subject,
            message: Some("lost".to_owned()),
            ..entry(JournalKind::Revoke, root)
        };
        let author = Actor::Author { name: Some("Anna Example <anna@example.org>".to_owned()) };
        let policy = JournalEntry {
            subject: JournalSubject {
                revision: Some(ironmesh_catalog::PolicyRevision("1234abcd".into())),
                commit: Some("abc".to_owned()),
                ..JournalSubject::default()
            },
            outcome: JournalOutcome::Rejected { reason: "error\u{1b}[IM0101]\nx".to_owned() },
            ..entry(JournalKind::Policy, author)
        };
        let issued = JournalEntry {
            subject: JournalSubject {
                account: Some("shop/buyer".parse().unwrap()),
                ..JournalSubject::default()
            },
            count: 2,
            ..entry(JournalKind::Certificate, Actor::ControlPlane)
        };
        let token = Some("5f0c9a1be2d34e67".parse().unwrap());
        let join = JournalEntry {
            origin: Some("192.0.2.66:40112".to_owned()),
            outcome: JournalOutcome::Rejected { reason: "the token has expired".to_owned() },
            ..entry(JournalKind::Enroll, Actor::Machine { token, vm_id: None })
        };
        let expected = "\
TIME                  WHO            WHAT         SUBJECT               OUTCOME
1970-01-01T00:00:00Z  root           revoke       0a1b2c3d shop/books…  done
  0a1b2c3d shop/bookstore; lost
1970-01-01T00:00:00Z  Anna Example…  policy       1234abcd              rejected
  Anna Example <anna@example.org>; commit abc; error\\u001b[IM0101]\\u000ax
1970-01-01T00:00:00Z  control plane  certificate  2 × account shop/bu…  done
  2 × account shop/buyer
1970-01-01T00:00:00Z  token 5f0c9a…  enroll       -                     rejected
  token 5f0c9a1be2d34e67; from 192.0.2.66:40112; the token has expired
";
        let text = format!("{HEADER}{}", rows(&[revoke, policy, issued, join]));
        assert_eq!(text, expected);
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }
}
