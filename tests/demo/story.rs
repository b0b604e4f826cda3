//! `ironmesh demo --check`: the story runs to its end with the expected figures.

use rustix::process::Signal;
use serde_json::Value;

use crate::workspace::{Workspace, finish};

#[tokio::test]
async fn check_passes_each_step_and_reports_measurements() {
    let Some(workspace) = Workspace::open().await else { return };
    let run = finish(&mut workspace.command(&["demo", "--check", "--output", "json"])).await;
    assert_eq!(run.code, 0, "{run:?}");
    workspace.assert_nothing_left();

    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(document["passed"], true, "{document:#}");
    assert_eq!(document["problem"], Value::Null, "{document:#}");
    let steps = document["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 10, "{document:#}");
    for step in steps {
        assert_eq!((&step["passed"], &step["problem"]), (&true.into(), &Value::Null), "{step:#}");
        // Each step prints its name.
        let name = step["name"].as_str().unwrap();
        assert!(run.stderr.contains(&format!("ironmesh demo: {name}\n")), "{}", run.stderr);
    }
    let figures = |name: &str| {
        let step = steps.iter().find(|step| step["name"] == name);
        &step.unwrap_or_else(|| panic!("no step {name:?} in {document:#}"))["figures"]
    };
    let number = |step, figure: &str| {
        figures(step)[figure].as_f64().unwrap_or_else(|| panic!("no {figure}: {document:#}"))
    };
    assert!((6.0..=14.0).contains(&number("split 90/10", "second_percent")), "{document:#}");
    assert!((44.0..=56.0).contains(&number("split 50/50", "second_percent")), "{document:#}");
    let killed = "control plane killed under traffic";
    for none in ["failed", "retried", "tcp_reconnects"] {
        assert_eq!(figures(killed)[none], 0, "{none}: {document:#}");
    }
    for (figure, min, max) in [
        ("requests", 200.0, f64::INFINITY),
        ("tcp_exchanges", 50.0, f64::INFINITY),
        ("policy_ms", 0.0, 2000.0),
        ("endpoint_ms", 0.0, 2000.0),
    ] {
        assert!((min..=max).contains(&number(killed, figure)), "{figure}: {document:#}");
    }
    assert_eq!(figures("nothing left")["folder_removed"], true);
    assert!(number("nothing left", "addresses_free") > 20.0, "{document:#}");
    // The line of the mistake in the story.
    assert_eq!(figures("bad policy rejected")["line"], 4);
}

#[tokio::test]
async fn interrupted_check_reports_its_progress() {
    let Some(workspace) = Workspace::open().await else { return };
    let mut demo = workspace.start(&["--check", "--output", "json"]);
    demo.wait_for_text("ironmesh demo: split 90/10\n").await;
    demo.child.signal(Signal::INT);
    let status = demo.child.wait().await;
    let text = demo.text();
    assert_eq!(status.code(), Some(1), "{text}");
    let problem = "a signal ended the check early";
    assert!(text.ends_with(&format!("ironmesh: {problem}\n")), "{text}");
    workspace.assert_nothing_left();

    // The document is between the messages for users.
    let (begin, end) = (text.find("\n{").unwrap(), text.find("\n}").unwrap());
    let document: Value = serde_json::from_str(&text[begin..end + 2]).unwrap();
    assert_eq!(document["passed"], false, "{document:#}");
    assert_eq!(document["problem"], problem);
    let steps = document["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 10, "{document:#}");
    assert_eq!(steps[0]["passed"], true, "{document:#}");
    assert_eq!(steps[9]["problem"], "not run", "{document:#}");
}
