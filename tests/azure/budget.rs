//! The number of requests to Azure.

use std::time::Duration;

use ironmesh_providers::azure::AzureOptions;
use ironmesh_tests::azure::{AzureFault, FakeAzure, Machine, RequestKind, ScaleSet};
use ironmesh_tests::eventually;

use crate::watch::{ProviderWatch, options, scale_set, shop};

/// Azure's published limit of reads for one caller and subscription per hour, in the older scheme.
const READS_PER_HOUR: usize = 12_000;
/// Azure's published limit of reads of the network provider per 5 minutes.
const NETWORK_READS_PER_5_MINUTES: usize = 10_000;

#[tokio::test]
async fn thousand_vms_need_at_most_ten_azure_calls() {
    for is_flexible in [false, true] {
        let azure = FakeAzure::start().await;
        azure.change(|vms| {
            let set = ScaleSet { is_flexible, ..ScaleSet::default() };
            vms.scale_sets.insert("web".to_owned(), set);
            for n in 0..1000 {
                let address = format!("10.0.{}.{}", n / 250, n % 250 + 1);
                vms.machines.push(Machine::of("web", &format!("m{n}"), &address));
            }
        });
        // One round, and no more.
        let once = AzureOptions { interval: Duration::from_secs(3600), ..options(&azure) };
        let web = ProviderWatch::web(once);
        web.wait_until("all", "web", |found| {
            found.endpoints.len() == 1000 && found.is_authoritative
        })
        .await;
        assert!(azure.calls() <= 10, "{} calls", azure.calls());
    }
}

#[tokio::test(start_paused = true)]
async fn twenty_scale_sets_use_under_a_tenth_of_azure_rate_limits() {
    let azure = FakeAzure::start().await;
    let names: Vec<_> = (0..20).map(|n| format!("set{n}")).collect();
    azure.change(|vms| {
        for (n, name) in names.iter().enumerate() {
            let is_flexible = n % 4 == 0;
            vms.scale_sets.insert(name.clone(), ScaleSet { is_flexible, ..ScaleSet::default() });
            for m in 1..=10 {
                let id = if is_flexible { format!("{name}_{m}") } else { m.to_string() };
                vms.machines.push(Machine::of(name, &id, &format!("10.0.{n}.{m}")));
            }
        }
    });
    let paced = AzureOptions {
        interval: AzureOptions::default().interval,
        reads_per_hour: AzureOptions::default().reads_per_hour,
        ..options(&azure)
    };
    let may_be = usize::try_from(paced.reads_per_hour).unwrap();
    let services = names.iter().map(|name| (name.as_str(), vec![scale_set(name)]));
    let watch = ProviderWatch::services(paced, services);
    for name in &names {
        watch.wait_until("all", name, |found| found.endpoints.len() == 10).await;
    }
    let started_at = tokio::time::Instant::now();
    let before = azure.calls();
    let hour = Duration::from_secs(3600);
    // The virtual clock advances as soon as no task is busy.
    tokio::time::sleep_until(started_at + hour).await;
    let calls = azure.calls() - before;
    println!("{calls} calls within an hour");
    assert!(calls * 10 < READS_PER_HOUR, "{calls} calls");
    assert!(calls <= may_be, "{calls} calls");
    assert!(calls > 200, "{calls} calls: Azure is polled at all");
    let of_network = azure.request_times().into_iter().filter(|(kind, at)| {
        let is_late = *at > started_at + hour - Duration::from_secs(300);
        is_late && matches!(kind, RequestKind::UniformInterfaces | RequestKind::Interfaces)
    });
    assert!(of_network.count() * 10 < NETWORK_READS_PER_5_MINUTES);
    let found = watch.of("set0").unwrap();
    assert!(found.is_authoritative && found.stale.is_none(), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn two_hundred_scale_sets_stay_within_reads_per_hour_from_start() {
    const SETS: u8 = 200;
    let azure = FakeAzure::start().await;
    let names: Vec<_> = (0..SETS).map(|n| format!("set{n}")).collect();
    azure.change(|vms| {
        for (n, name) in names.iter().enumerate() {
            vms.scale_sets.insert(name.clone(), ScaleSet::default());
            vms.machines.push(Machine::of(name, "1", &format!("10.0.{n}.1")));
        }
    });
    let paced = AzureOptions {
        interval: AzureOptions::default().interval,
        reads_per_hour: AzureOptions::default().reads_per_hour,
        ..options(&azure)
    };
    let may_be = usize::try_from(paced.reads_per_hour).unwrap();
    let started_at = tokio::time::Instant::now();
    let services = names.iter().map(|name| (name.as_str(), vec![scale_set(name)]));
    let watch = ProviderWatch::services(paced, services);
    for name in &names {
        watch.wait_until("all", name, |found| found.endpoints.len() == 1).await;
    }
    let hour = Duration::from_secs(3600);
    tokio::time::sleep_until(started_at + hour * 3 / 2).await;
    // A third of them changes.
    azure.change(|vms| {
        for name in names.iter().step_by(3) {
            vms.machines.push(Machine::of(name, "2", &format!("10.1.{}.1", &name[3..])));
        }
    });
    tokio::time::sleep_until(started_at + hour * 3).await;
    for name in names.iter().step_by(3) {
        watch.wait_until("the new one", name, |found| found.endpoints.len() == 2).await;
    }
    let of_tokens = [RequestKind::Login, RequestKind::Metadata];
    let mut requests = azure.request_times();
    requests.retain(|(kind, _)| !of_tokens.contains(kind));
    let most = |time: Duration, matches: &dyn Fn(RequestKind) -> bool| {
        let times: Vec<_> =
            requests.iter().filter(|(kind, _)| matches(*kind)).map(|(_, at)| *at).collect();
        let within = |(n, from): (usize, &tokio::time::Instant)| {
            times.partition_point(|at| *at < *from + time) - n
        };
        times.iter().enumerate().map(within).max().unwrap_or(0)
    };
    let of_network =
        |kind| matches!(kind, RequestKind::UniformInterfaces | RequestKind::Interfaces);
    let within_an_hour = most(hour, &|_| true);
    println!("{within_an_hour} calls within an hour, {} in all", requests.len());
    assert!(within_an_hour <= may_be, "{within_an_hour} calls");
    assert!(within_an_hour * 10 < READS_PER_HOUR, "{within_an_hour} calls");
    assert!(most(Duration::from_secs(300), &of_network) * 10 < NETWORK_READS_PER_5_MINUTES);
    assert!(requests.len() > 2 * may_be, "{} calls: the budget is used", requests.len());
}

#[tokio::test]
async fn low_remaining_azure_quota_lengthens_poll_interval() {
    let azure = shop().await;
    let often = AzureOptions { interval: Duration::from_millis(300), ..options(&azure) };
    let web = ProviderWatch::web(often);
    web.wait_for("web", &["10.0.0.1", "10.0.0.2"]).await;
    azure.set_fault(RequestKind::ScaleSets, AzureFault::LowQuota);
    let count = azure.count(RequestKind::ScaleSets);
    eventually("some rounds", async || match azure.count(RequestKind::ScaleSets) - count {
        0..4 => Err("not yet"),
        _ => Ok(()),
    })
    .await;
    let mut requests = azure.request_times();
    requests.retain(|(kind, _)| *kind == RequestKind::ScaleSets);
    let [.., before, last] = requests.as_slice() else {
        panic!("fewer than two requests: {requests:?}")
    };
    assert!(last.1 - before.1 >= Duration::from_millis(1200), "{:?}", last.1 - before.1);
}
