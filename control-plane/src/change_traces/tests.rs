use ironmesh_traces::QueuedSpans;
use ironmesh_xds_wire::ResourceType::{Cluster, Listener};

use super::*;

struct Setup {
    traces: ChangeTraces,
    queued: QueuedSpans,
}

impl Setup {
    fn new() -> Self {
        let (queue, queued) = SpanQueue::new();
        Self { traces: ChangeTraces::new(queue), queued }
    }

    fn change(&self, id: &str, clients: &[&str]) -> Arc<TracedChange> {
        let change = Arc::new(ChangeTraces::begin(id, "policy", "policy", Moment::now()));
        for client in clients {
            self.traces.assign(&(*client).into(), [&change].into_iter());
        }
        change
    }

    fn push(&self, client: &str, stream: u64, resource_type: ResourceType) {
        let push =
            ObservedPush { resource_type, version: None, resources: &[], removed: 1, bytes: 10 };
        self.traces.pushed(&client.into(), stream, &push);
    }

    fn ack(&self, stream: u64, of: ResourceType) {
        self.traces.answered(stream, of, None);
    }

    fn spans(&mut self) -> Vec<FinishedSpan> {
        std::iter::from_fn(|| self.queued.take()).collect()
    }

    fn omitted(&self) -> u64 {
        self.traces.omitted.load(Ordering::Relaxed)
    }
}

fn attribute<'a>(span: &'a FinishedSpan, key: &str) -> Option<&'a AttributeValue> {
    span.attributes.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
}

#[test]
fn change_has_one_trace_with_its_pass_and_its_pushes() {
    let mut setup = Setup::new();
    let change = setup.change("policy-1", &["a", "b"]);
    setup.traces.reconciled(&change, 2);
    setup.push("a", 1, Cluster);
    setup.push("b", 2, Cluster);
    setup.push("b", 2, Listener);
    setup.push("unaffected", 3, Cluster);
    setup.ack(1, Cluster);
    setup.traces.answered(2, Cluster, Some("bad"));
    setup.ack(2, Listener);
    setup.ack(3, Cluster);
    setup.traces.end(&change, 2, ChangeEnd::Answered { nacked: 1 });
    setup.traces.end(&change, 2, ChangeEnd::Shutdown);

    let spans = setup.spans();
    let names: Vec<_> = spans.iter().map(|span| span.name).collect();
    assert_eq!(names, ["reconcile", "push", "push", "push", "change"]);
    let errors: Vec<_> = spans.iter().map(|span| span.error.as_deref()).collect();
    let nacked = Some("proxies that NACKed it: 1");
    assert_eq!(errors, [None, None, Some("NACK: bad"), None, nacked]);
    let root = &spans[4];
    assert_eq!((root.context, root.parent), (change.context, None));
    assert_eq!(attribute(root, "ironmesh.pushes"), Some(&AttributeValue::Number(3)));
    for span in &spans[..4] {
        assert_eq!(span.context.trace_id, root.context.trace_id);
        assert_eq!(span.parent, Some(root.context.span_id));
        assert!(root.start <= span.start && span.start <= span.end, "{span:?}");
        assert_eq!(attribute(span, "ironmesh.change"), Some(&"policy-1".into()));
    }
    assert_eq!(attribute(&spans[2], "ironmesh.proxy"), Some(&"b".into()));
    assert_eq!(attribute(&spans[2], "xds.type_url"), Some(&Cluster.url().into()));
}

#[test]
fn push_of_several_changes_links_all_their_traces() {
    let mut setup = Setup::new();
    let first = setup.change("endpoints-1", &["a"]);
    let (policy, endpoints) = (setup.change("policy-2", &[]), setup.change("endpoints-2", &[]));
    setup.traces.assign(&"a".into(), [&policy, &endpoints].into_iter());
    setup.push("a", 1, Cluster);
    setup.ack(1, Cluster);
    let spans = setup.spans();
    assert_eq!(spans[0].parent, Some(policy.context.span_id), "the more important of a pass");
    assert_eq!(spans[0].links, [endpoints.context, first.context]);

    // An earlier change that has ended is no part of the next one's pushes.
    setup.traces.end(&first, 1, ChangeEnd::Answered { nacked: 0 });
    setup.traces.end(&endpoints, 1, ChangeEnd::Answered { nacked: 0 });
    let next = setup.change("policy-3", &["a"]);
    setup.spans();
    setup.push("a", 1, Cluster);
    setup.ack(1, Cluster);
    let spans = setup.spans();
    assert_eq!(spans[0].parent, Some(next.context.span_id));
    assert_eq!(spans[0].links, [policy.context]);
}

#[test]
fn settled_proxy_has_no_pushes_and_a_lost_one_fails() {
    let mut setup = Setup::new();
    let change = setup.change("policy-1", &["a", "b"]);
    setup.traces.settle("a");
    setup.push("a", 1, Cluster);
    setup.push("b", 2, Cluster);
    setup.push("b", 2, Cluster);
    setup.traces.ended(1);
    setup.traces.ended(2);
    let spans = setup.spans();
    let errors: Vec<_> = spans.iter().map(|span| span.error.as_deref().unwrap()).collect();
    assert_eq!(errors, ["not answered before the next push of the type", "the stream ended"]);
    // The shutdown ends what is open.
    setup.push("b", 3, Listener);
    setup.traces.end(&change, 2, ChangeEnd::Shutdown);
    setup.traces.complete();
    let errors = setup.spans().into_iter().map(|span| span.error.unwrap());
    assert_eq!(errors.collect::<Vec<_>>(), ["the control plane stopped"; 2]);
}

#[test]
fn usual_pushes_of_a_trace_are_bounded_and_nacks_are_not() {
    let mut setup = Setup::new();
    let change = setup.change("policy-1", &["a"]);
    for stream in 0..MOST_USUAL + 5 {
        setup.push("a", stream, Cluster);
        setup.ack(stream, Cluster);
    }
    setup.push("a", 0, Cluster);
    setup.traces.answered(0, Cluster, Some("bad"));
    let spans = setup.spans();
    assert_eq!(spans.len() as u64, MOST_USUAL + 1);
    assert!(spans.last().unwrap().error.is_some());
    assert_eq!(setup.omitted(), 5);
    setup.traces.end(&change, 1, ChangeEnd::Answered { nacked: 0 });
    let pushes = MOST_USUAL + 6;
    assert_eq!(attribute(&setup.spans()[0], "ironmesh.pushes"), Some(&pushes.into()));
}

#[test]
fn pushes_without_an_answer_are_bounded() {
    let mut setup = Setup::new();
    setup.change("policy-1", &["a"]);
    for stream in 0..=MOST_OPEN as u64 {
        setup.push("a", stream, Cluster);
    }
    assert_eq!(setup.traces.state.lock().pushes.len(), MOST_OPEN);
    assert_eq!(setup.omitted(), 1);
    // An answered push has room for another.
    setup.ack(0, Cluster);
    setup.push("a", 0, Listener);
    setup.ack(0, Listener);
    assert_eq!(setup.spans().len(), 2);
}
