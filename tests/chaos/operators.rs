//! Operators and machines that change the mesh at any control plane, and the history of their calls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::Secret;
use ironmesh_cert::generate_proxy_key_and_csr;
use ironmesh_enrollment::EnrollRequest;
use ironmesh_enrollment::{EnrollmentClient, EnrollmentClientError, ServerTrust};
use ironmesh_tests::random::SeededRandom;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::history::{Call, is_linearizable};
use crate::machines::Cli;
use crate::run::write_policy;

/// What was called, with the answers.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// For each token: the contender that joins with it. The answer is the contender to which the token belongs.
    joins: BTreeMap<String, Vec<Call<u32, u32>>>,
    /// For each token: the proxies that it has enrolled.
    proxies: BTreeMap<String, BTreeSet<String>>,
    /// For each proxy: the reason of a revocation. The answer is the reason that holds.
    revocations: BTreeMap<String, Vec<Call<String, String>>>,
    /// The policy as a number.
    policy: Vec<Call<PolicyCall, PolicyAnswer>>,
    /// The proxies that joined.
    pub(crate) joined: BTreeSet<String>,
}

/// A call about the policy in etcd.
#[derive(Debug, Clone, Copy)]
enum PolicyCall {
    Read,
    /// Writes the second number if the first one is current.
    Push(u32, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PolicyAnswer {
    Current(u32),
    IsPushed(bool),
}

/// What operators work with.
#[derive(Debug)]
pub(crate) struct Operators {
    /// Commands at each control plane, and the URL at which machines join there.
    pub(crate) control_planes: Vec<(Cli, String)>,
    /// Commands that need etcd alone.
    pub(crate) of_policy: Cli,
    /// The proxies that may be revoked.
    pub(crate) spare: Vec<String>,
    pub(crate) folder: PathBuf,
}

/// Running operators.
#[derive(Debug)]
pub(crate) struct Work {
    history: Arc<Mutex<History>>,
    stop: CancellationToken,
    workers: JoinSet<()>,
}

impl Operators {
    /// Starts to work.
    pub(crate) fn start(self, random: &mut SeededRandom) -> Work {
        let (operators, history) = (Arc::new(self), Arc::<Mutex<History>>::default());
        let (stop, mut workers) = (CancellationToken::new(), JoinSet::new());
        for worker in 0..4 {
            let (operators, history) = (Arc::clone(&operators), Arc::clone(&history));
            let (mut random, stop) = (random.split(), stop.clone());
            workers.spawn(async move {
                let mut round = 0;
                while !stop.is_cancelled() {
                    match worker {
                        0 => Box::pin(operators.join(&mut random, &history)).await,
                        1 => operators.revoke(round, &mut random, &history).await,
                        _ => operators.push(worker * 1_000 + round, &mut random, &history).await,
                    }
                    round += 1;
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = sleep(random.millis(200..2_000)) => {}
                    }
                }
            });
        }
        Work { history, stop, workers }
    }

    /// Two machines with one token, each with a key of its own, and one of them again.
    async fn join(&self, random: &mut SeededRandom, history: &Mutex<History>) {
        let (cli, _) = random.choose(&self.control_planes);
        let Ok(created) = cli.json(&["proxy", "token", "--service", "s0"]).await else { return };
        let text =
            |pointer: &str| created.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        let (token, hash) = (text("/tokens/0/token"), text("/ca_hashes/0"));
        let [one, other, last] = [(); 3].map(|()| random.choose(&self.control_planes).1.clone());
        let (first, second) = (Contender::new(1, &token, &hash), Contender::new(2, &token, &hash));
        let (a, b) = tokio::join!(first.join(&one), second.join(&other));
        let c = second.join(&last).await;
        let mut history = history.lock();
        for (call, proxy) in [a, b, c].into_iter().flatten() {
            history.proxies.entry(token.clone()).or_default().extend(proxy.clone());
            history.joined.extend(proxy);
            history.joins.entry(token.clone()).or_default().push(call);
        }
    }

    /// Two operators who revoke one proxy, for different reasons.
    async fn revoke(&self, round: usize, random: &mut SeededRandom, history: &Mutex<History>) {
        let Some(proxy) = self.spare.get(round) else { return };
        let [(one, _), (other, _), (last, _)] =
            [(); 3].map(|()| random.choose(&self.control_planes));
        let (a, b) =
            tokio::join!(revoke(one, proxy, "it was lost"), revoke(other, proxy, "it was sold"));
        let c = revoke(last, proxy, "it was late").await;
        history.lock().revocations.insert(proxy.clone(), vec![a, b, c]);
    }

    /// A push on what is current.
    async fn push(&self, number: usize, random: &mut SeededRandom, history: &Mutex<History>) {
        let begin = Instant::now();
        let Ok(listed) = self.of_policy.json(&["policy", "revisions"]).await else { return };
        let all = listed["revisions"].as_array().unwrap();
        let current = all.iter().find(|one| one["current"] == true).unwrap();
        let read: u32 = current["message"].as_str().unwrap().parse().unwrap();
        let answer = Some((Instant::now(), PolicyAnswer::Current(read)));
        history.lock().policy.push(Call { input: PolicyCall::Read, begin, answer });

        sleep(random.millis(0..200)).await;
        let number = u32::try_from(number).unwrap();
        let folder = write_policy(&self.folder, number);
        let (folder, message) = (folder.display().to_string(), number.to_string());
        let revision = current["revision"].as_str().unwrap();
        let begin = Instant::now();
        let arguments = ["policy", "push", &folder, "--expect", revision, "--message", &message];
        let output = self.of_policy.run(&arguments).await;
        let is_pushed = output.and_then(|output| {
            let is_rejected = String::from_utf8_lossy(&output.stderr).contains("not pushed");
            (output.status.success() || is_rejected).then_some(output.status.success())
        });
        let answer = is_pushed.map(|is_pushed| (Instant::now(), PolicyAnswer::IsPushed(is_pushed)));
        history.lock().policy.push(Call { input: PolicyCall::Push(read, number), begin, answer });
    }
}

async fn revoke(cli: &Cli, proxy: &str, reason: &str) -> Call<String, String> {
    let begin = Instant::now();
    let answer = cli.json(&["proxy", "revoke", proxy, "--reason", reason]).await.ok();
    let answer = answer.map(|answer| {
        let reason = answer["proxies"][0]["revocation"]["reason"].as_str().unwrap().to_owned();
        (Instant::now(), reason)
    });
    Call { input: reason.to_owned(), begin, answer }
}

/// A machine with a token.
struct Contender {
    number: u32,
    trust: ServerTrust,
    request: EnrollRequest,
}

impl Contender {
    fn new(number: u32, token: &str, hash: &str) -> Self {
        let (_, certificate_request) = generate_proxy_key_and_csr().unwrap();
        let trust = ServerTrust::Hashes(vec![hash.parse().unwrap()]);
        let address = Some([10, 79, 0, 1].into());
        let token = Secret::new(token.to_owned());
        Self {
            number,
            trust,
            request: EnrollRequest { token, certificate_request, address, name: None },
        }
    }

    /// The call and the proxy, unless the request was not sent. A rejection says nothing: the control plane may not
    /// know the token yet.
    async fn join(&self, url: &str) -> Option<(Call<u32, u32>, Option<String>)> {
        let client = EnrollmentClient::new(vec![url.parse().unwrap()], self.trust.clone()).unwrap();
        let client = client.without_retries().with_time_limit(Duration::from_secs(12));
        let begin = Instant::now();
        let call = |answer| Call { input: self.number, begin, answer };
        match client.enroll(&self.request).await {
            Ok(enrolled) => {
                let answer = Some((Instant::now(), self.number));
                Some((call(answer), Some(enrolled.id.to_string())))
            }
            Err(EnrollmentClientError::Rejected { .. }) => None,
            Err(error) => error.was_sent().then(|| (call(None), None)),
        }
    }
}

impl Work {
    /// Stops, and returns the history.
    pub(crate) async fn stop(mut self) -> History {
        self.stop.cancel();
        while let Some(ended) = self.workers.join_next().await {
            ended.unwrap();
        }
        std::mem::take(&mut *self.history.lock())
    }
}

impl History {
    /// Fails the test unless all that operators rely on was linearizable.
    pub(crate) fn assert_linearizable(&self, first_policy: u32) {
        let answered =
            |calls: usize| assert!(calls > 0, "no call was answered: {}", self.summary());
        answered(self.joined.len());
        answered(self.revoked().count());
        answered(self.policy.iter().filter(|call| call.answer.is_some()).count());
        for (token, proxies) in &self.proxies {
            assert!(proxies.len() <= 1, "{token} has enrolled {proxies:?}");
        }
        for (token, calls) in &self.joins {
            // A token belongs to the first that joins with it.
            let step = |owner: &u32, contender: &u32| match owner {
                0 => (*contender, *contender),
                owner => (*owner, *owner),
            };
            assert!(is_linearizable(calls, 0, step), "joins with {token}: {calls:#?}");
        }
        for (proxy, calls) in &self.revocations {
            // The first revocation holds.
            let step = |reason: &Option<String>, new: &String| {
                let reason = reason.as_ref().unwrap_or(new).clone();
                (Some(reason.clone()), reason)
            };
            assert!(is_linearizable(calls, None, step), "revocations of {proxy}: {calls:#?}");
        }
        let is_linear = is_linearizable(&self.policy, first_policy, |current, call| match *call {
            PolicyCall::Read => (*current, PolicyAnswer::Current(*current)),
            PolicyCall::Push(expected, new) if expected == *current => {
                (new, PolicyAnswer::IsPushed(true))
            }
            PolicyCall::Push(..) => (*current, PolicyAnswer::IsPushed(false)),
        });
        assert!(is_linear, "policy: {:#?}", self.policy);
    }

    /// The proxies whose revocation was answered.
    pub(crate) fn revoked(&self) -> impl Iterator<Item = &String> {
        let is_answered =
            |calls: &[Call<String, String>]| calls.iter().any(|call| call.answer.is_some());
        self.revocations.iter().filter(move |(_, calls)| is_answered(calls)).map(|(proxy, _)| proxy)
    }

    /// The proxies whose revocation was called and never answered.
    pub(crate) fn in_doubt(&self) -> impl Iterator<Item = &String> {
        let is_in_doubt =
            |calls: &[Call<String, String>]| calls.iter().all(|call| call.answer.is_none());
        self.revocations.iter().filter(move |(_, calls)| is_in_doubt(calls)).map(|(proxy, _)| proxy)
    }

    /// A line for the report.
    pub(crate) fn summary(&self) -> String {
        fn count<'a, I: 'a, O: 'a>(calls: impl Iterator<Item = &'a Call<I, O>>) -> String {
            let (mut all, mut answered) = (0, 0);
            for call in calls {
                all += 1;
                answered += usize::from(call.answer.is_some());
            }
            format!("{all} ({answered} answered)")
        }
        format!(
            "joins {}, revocations {}, calls about policy {}",
            count(self.joins.values().flatten()),
            count(self.revocations.values().flatten()),
            count(self.policy.iter()),
        )
    }
}
