//! Configuration as text: documents of policy, providers and settings.

use std::fmt::Write as _;

use ironmesh_api::{
    PolicyDocuments, ProviderList, ProviderReportView, SettingsView, UnreportedService,
};
use ironmesh_catalog::text::{escape_line, escape_output};
use ironmesh_terminal::table::{age, aligned};
use jiff::Timestamp;

/// The documents of a revision, each below a line with its path.
pub fn documents_text(documents: &PolicyDocuments) -> String {
    let PolicyDocuments { revision, active, documents } = documents;
    let state = if *active { "active" } else { "not active" };
    let mut text = format!("# revision {revision}, {state}\n");
    for document in documents {
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "\n# {}", escape_line(&document.path));
        let _ = writeln!(text, "{}", escape_output(document.text.trim_end()));
    }
    text
}

/// The providers as a table, and what is wrong with them.
pub fn providers_text(list: &ProviderList, now: Timestamp) -> String {
    let headings = ["PROVIDER", "STATE", "AGE", "SERVICES", "ENDPOINTS"].map(str::to_owned);
    let row = |one: &ProviderReportView| {
        [
            one.provider.to_string(),
            one.state.as_str().to_owned(),
            one.learned_at.map_or_else(|| "-".to_owned(), |at| age(at, now)),
            one.services.to_string(),
            one.endpoints.to_string(),
        ]
    };
    let rows: Vec<_> = [headings].into_iter().chain(list.providers.iter().map(row)).collect();
    let problems = list.providers.iter().flat_map(provider_problems);
    let lines = aligned(&rows).into_iter().chain(problems);
    lines.map(|line| escape_line(&line).into_owned() + "\n").collect()
}

fn provider_problems(view: &ProviderReportView) -> Vec<String> {
    let provider = view.provider;
    let stale = view.stale.iter().map(|stale| {
        format!("{provider} has no usable source since {:.0}: {}", stale.since, stale.reason)
    });
    let held = view
        .held
        .iter()
        .map(|service| format!("{provider}: an endpoint removal of {service} is held back"));
    let unreported = view.unreported.iter().map(|UnreportedService { service, stale }| {
        format!("{provider} has never reported {service}: {}", stale.reason)
    });
    let shown = view.held.len() + view.unreported.len();
    let more = (view.held_count + view.unreported_count).saturating_sub(shown);
    let more = (more > 0).then(|| format!("{provider}: {more} more services"));
    stale.chain(held).chain(unreported).chain(more).collect()
}

/// The settings as a table, and the file that they come from.
pub fn settings_text(view: &SettingsView) -> String {
    let headings = ["SETTING", "VALUE", "A CHANGE APPLIES"].map(str::to_owned);
    let rows = view.settings.iter().map(|setting| {
        let applies = if setting.needs_restart { "after a restart" } else { "on reload" };
        [setting.key.clone(), setting.value.clone(), applies.to_owned()]
    });
    let rows: Vec<_> = [headings].into_iter().chain(rows).collect();
    let source = match &view.file {
        Some(file) => format!("settings file: {file}"),
        None => "no settings file: all values are defaults".to_owned(),
    };
    let lines = [source, String::new()].into_iter().chain(aligned(&rows));
    lines.map(|line| escape_line(&line).into_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use ironmesh_api::{PolicyDocument, ProviderStatus, SettingView, StaleView};
    use ironmesh_catalog::{PolicyRevision, Provider};

    use super::*;

    #[test]
    fn documents_have_paths_and_no_control_characters() {
        let document =
            PolicyDocument { path: "a.toml".to_owned(), text: "# one\n\u{1b}[2J\n".to_owned() };
        let documents = PolicyDocuments {
            revision: PolicyRevision("4be3".into()),
            active: true,
            documents: vec![document],
        };
        let text = documents_text(&documents);
        assert_eq!(text, "# revision 4be3, active\n\n# a.toml\n# one\n\\u001b[2J\n");
    }

    #[test]
    fn providers_are_listed_with_age_and_problems() {
        let now = Timestamp::from_second(7_200).unwrap();
        let hour = Timestamp::from_second(3_600).unwrap();
        let stale = StaleView { since: hour, reason: "no agent answers".to_owned() };
        let consul = ProviderReportView {
            provider: Provider::Consul,
            external: true,
            state: ProviderStatus::Stale,
            learned_at: Some(hour),
            age_seconds: Some(3_600),
            stale: Some(stale.clone()),
            services: 2,
            endpoints: 5,
            held: vec!["shop/cart".parse().unwrap()],
            held_count: 3,
            unreported: vec![UnreportedService { service: "shop/web".parse().unwrap(), stale }],
            unreported_count: 1,
        };
        let expected = "\
PROVIDER  STATE  AGE  SERVICES  ENDPOINTS
consul    stale  1h   2         5
consul has no usable source since 1970-01-01T01:00:00Z: no agent answers
consul: an endpoint removal of shop/cart is held back
consul has never reported shop/web: no agent answers
consul: 2 more services
";
        assert_eq!(providers_text(&ProviderList { providers: vec![consul] }, now), expected);
    }

    #[test]
    fn settings_are_listed_with_when_a_change_applies() {
        let setting = |key: &str, value: &str, needs_restart| SettingView {
            key: key.to_owned(),
            value: value.to_owned(),
            needs_restart,
        };
        let settings = vec![setting("mode", "strict", false), setting("mesh", "shop", true)];
        let expected = "\
no settings file: all values are defaults

SETTING  VALUE   A CHANGE APPLIES
mode     strict  on reload
mesh     shop    after a restart
";
        assert_eq!(settings_text(&SettingsView { file: None, settings }), expected);
    }
}
