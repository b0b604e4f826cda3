//! Calls to hosts outside the mesh without a service: allowed by egress policy, and denied without
//! (scenarios 12 and 13 of Open Service Mesh's tests).

mod outside;

use http::{Method, StatusCode};
use ironmesh_tests::{
    App, Envoy, Http1Connection, Ledger, Load, Mesh, NameServer, Programs, ProxyOptions,
    TcpConnection, eventually,
};
use tokio::net::TcpStream;

use self::outside::{TlsServer, connect};
use crate::split_mesh::SplitMesh;

/// The host numbers of the outside servers.
const HTTPBIN: u8 = 31;
const OTHER_HOST: u8 = 32;

const SERVICES: &str = r#"
[[service]]
name = "till"

[[service]]
name = "clerk"

[[service]]
name = "ledger"
ports = [{ port = 8080, protocol = "http" }]

[[service]]
name = "payments"
external = true
hostname = "payments.example"
ports = [{ port = 8080, protocol = "http" }]
"#;

/// A mesh with two callers, and the hosts outside it.
struct EgressMesh {
    mesh: Mesh,
    till: Envoy,
    clerk: Envoy,
    names: NameServer,
    tls: TlsServer,
    _outside: (Vec<App>, Vec<Ledger>),
}

impl EgressMesh {
    async fn open() -> Option<Self> {
        let programs = Programs::find()?;
        let mesh = Mesh::start(&programs, &[("services.toml", SERVICES)]).await;
        let names = NameServer::start(mesh.loopback().socket(2, 5353)).await;
        for (name, host) in [
            ("httpbin.example", HTTPBIN),
            ("a.wild.example", HTTPBIN),
            ("payments.example", OTHER_HOST),
            ("ledger.default", OTHER_HOST),
        ] {
            names.set(name, mesh.loopback().host(host));
        }
        names.set("metadata.example", "169.254.169.254".parse().unwrap());
        let at = |host, port| mesh.loopback().socket(host, port);
        let apps = vec![
            App::http1("httpbin", at(HTTPBIN, 8080)).await,
            App::http1("other", at(OTHER_HOST, 8080)).await,
        ];
        let ledgers = vec![
            Ledger::start("httpbin", at(HTTPBIN, 5432)).await,
            Ledger::start("other", at(OTHER_HOST, 5432)).await,
            Ledger::start("mine", at(HTTPBIN, 15003)).await,
        ];
        let tls = TlsServer::start(&["httpbin.example"], at(HTTPBIN, 8443)).await;
        let caller = |service: &str, host| {
            ProxyOptions::new(service, host).name_server(mesh.loopback().socket(2, 5353))
        };
        let till = mesh.envoy(&caller("default/till", 11)).await;
        let clerk = mesh.envoy(&caller("default/clerk", 12)).await;
        Some(Self { till, clerk, names, tls, _outside: (apps, ledgers), mesh })
    }

    /// The address of a host and port of the network, for clients without DNS.
    fn address(&self, host: u8, port: u16) -> String {
        self.mesh.loopback().socket(host, port).to_string()
    }

    /// Waits until CONNECT to `authority` gets this status.
    async fn wait_for_connect(&self, from: &Envoy, authority: &str, wanted: u16) {
        eventually(&format!("{wanted} to CONNECT {authority}"), async || {
            match connect(from.socket(15080), authority).await?.0 {
                status if status == wanted => anyhow::Ok(()),
                status => anyhow::bail!("{status}"),
            }
        })
        .await;
    }
}

/// The status of a request by `Host`, and the application that answered.
async fn request(from: &Envoy, host: &str, path: &str) -> anyhow::Result<(u16, String)> {
    let mut connection = Http1Connection::connect(from.socket(15080)).await?;
    let answer = connection.request(Method::GET, path, &[("host", host)]).await?;
    let app = answer.header("x-app").unwrap_or_default().to_owned();
    Ok((answer.status.as_u16(), app))
}

async fn wait_for_status(from: &Envoy, host: &str, path: &str, wanted: u16) {
    eventually(&format!("{wanted} of {host}{path}"), async || {
        match request(from, host, path).await? {
            (status, _) if status == wanted => anyhow::Ok(()),
            other => anyhow::bail!("{other:?}"),
        }
    })
    .await;
}

fn egress(name: &str, says: &str, ports: &[(u16, &str)], matches: &str) -> String {
    let ports: Vec<_> = ports
        .iter()
        .map(|(number, protocol)| format!("{{ number = {number}, protocol = \"{protocol}\" }}"))
        .collect();
    format!(
        "[[egress]]\nname = \"{name}\"\nsources = [{{ kind = \"ServiceAccount\", name = \"till\" }}]\n\
         {says}\nports = [{}]\n{matches}\n",
        ports.join(", ")
    )
}

const STATUS: &str = r#"
[[http_route_group]]
name = "status"
matches = [{ name = "status", path_regex = "/status.*", methods = ["GET"] }]
"#;

const MATCHES: &str = r#"matches = [{ kind = "HTTPRouteGroup", name = "status" }]"#;

#[tokio::test(flavor = "multi_thread")]
async fn egress_allows_only_its_sources_hosts_and_requests() {
    let Some(setup) = EgressMesh::open().await else { return };
    let host = "httpbin.example:8080";
    let by_host = "hosts = [\"httpbin.example\"]";
    // Without policy nothing leaves the mesh, and CONNECT is denied with a reason.
    assert_eq!(request(&setup.till, host, "/get").await.unwrap().0, 404);
    let (status, _, words) =
        connect(setup.till.socket(15080), "httpbin.example:8443").await.unwrap();
    assert_eq!(status, 403);
    assert!(words.contains("no egress lets spiffe://mesh.internal/ns/default/sa/till"), "{words}");

    // HTTP by `Host`.
    setup.mesh.write_policy("egress.toml", &egress("e", by_host, &[(8080, "http")], ""));
    wait_for_status(&setup.till, host, "/get", 200).await;
    assert_eq!(request(&setup.till, host, "/get").await.unwrap(), (200, "httpbin".to_owned()));
    assert_eq!(request(&setup.clerk, host, "/get").await.unwrap().0, 404);
    assert_eq!(request(&setup.till, "httpbin.example:8081", "/get").await.unwrap().0, 404);
    assert_eq!(request(&setup.till, "other.example:8080", "/get").await.unwrap().0, 404);
    let connected = connect(setup.till.socket(15080), host).await.unwrap().0;
    assert_eq!(connected, 403, "requests are not connections");

    // Of some requests; the next request on an open connection follows the current policy.
    let mut kept = Http1Connection::connect(setup.till.socket(15080)).await.unwrap();
    assert_eq!(kept.get("/get", host).await.unwrap().status, 200);
    let some = STATUS.to_owned() + &egress("e", by_host, &[(8080, "http")], MATCHES);
    setup.mesh.write_policy("egress.toml", &some);
    wait_for_status(&setup.till, host, "/get", 403).await;
    let rejected = kept.get("/get", host).await.unwrap();
    assert_eq!(rejected.status, 403);
    assert!(rejected.text().contains("no egress allows it"), "{}", rejected.text());
    assert_eq!(kept.get("/status/200", host).await.unwrap().status, 200);
    assert_eq!(request(&setup.till, host, "/status/../get").await.unwrap().0, 403);
    assert_eq!(request(&setup.till, host, "/status%2f..").await.unwrap().0, 400);

    // TLS by CONNECT, to the allowed host and port only.
    let both = [(8080, "http"), (8443, "https")];
    setup
        .mesh
        .write_policy("egress.toml", &(STATUS.to_owned() + &egress("e", by_host, &both, MATCHES)));
    setup.wait_for_connect(&setup.till, "httpbin.example:8443", 200).await;
    let (_, stream, _) = connect(setup.till.socket(15080), "httpbin.example:8443").await.unwrap();
    assert_eq!(setup.tls.greeting(stream, "httpbin.example").await.unwrap(), "hello");
    for (from, authority) in [
        (&setup.clerk, "httpbin.example:8443"),
        (&setup.till, "httpbin.example:5432"),
        (&setup.till, "other.example:8443"),
        (&setup.till, &*setup.address(HTTPBIN, 8443)),
    ] {
        assert_eq!(connect(from.socket(15080), authority).await.unwrap().0, 403, "{authority}");
    }
    assert_eq!(request(&setup.till, "httpbin.example:8443", "/").await.unwrap().0, 403);

    // All hosts below a name.
    let wild = egress("e", "hosts = [\"*.wild.example\"]", &[(8080, "http")], "");
    setup.mesh.write_policy("egress.toml", &wild);
    wait_for_status(&setup.till, "a.wild.example:8080", "/get", 200).await;
    assert_eq!(request(&setup.till, "wild.example:8080", "/get").await.unwrap().0, 404);

    // Without the policy nothing leaves any more.
    setup.mesh.remove_policy("egress.toml");
    wait_for_status(&setup.till, "a.wild.example:8080", "/get", 404).await;
    for _ in 0..5 {
        assert_eq!(request(&setup.till, "a.wild.example:8080", "/get").await.unwrap().0, 404);
        assert_eq!(connect(setup.till.socket(15080), "httpbin.example:8443").await.unwrap().0, 403);
    }
    setup.till.assert_no_update_errors().await;
    setup.clerk.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_allows_only_its_ranges_and_no_forbidden_address() {
    let Some(setup) = EgressMesh::open().await else { return };
    let (inside, outside) = (setup.address(HTTPBIN, 5432), setup.address(OTHER_HOST, 5432));
    let range = |host| format!("ip_addresses = [\"{}/32\"]", setup.mesh.loopback().host(host));
    setup.mesh.write_policy("egress.toml", &egress("db", &range(HTTPBIN), &[(5432, "tcp")], ""));
    setup.wait_for_connect(&setup.till, &inside, 200).await;
    // The server speaks first.
    let (_, stream, _) = connect(setup.till.socket(15080), &inside).await.unwrap();
    let mut connection = TcpConnection::over(stream);
    assert_eq!(connection.line().await.unwrap(), "httpbin");
    connection.exchange("a line").await.unwrap();
    for (from, authority) in [
        (&setup.till, &*outside),
        (&setup.till, &*setup.address(HTTPBIN, 8080)),
        (&setup.till, "httpbin.example:5432"),
        (&setup.clerk, &*inside),
    ] {
        assert_eq!(connect(from.socket(15080), authority).await.unwrap().0, 403, "{authority}");
    }

    // A host restricted to an address range, and whose address then leaves the range.
    let narrow = format!("hosts = [\"httpbin.example\"]\n{}", range(HTTPBIN));
    let ports = [(5432, "tcp"), (8080, "http")];
    setup.mesh.write_policy("egress.toml", &egress("db", &narrow, &ports, ""));
    setup.wait_for_connect(&setup.till, "httpbin.example:5432", 200).await;
    wait_for_status(&setup.till, "httpbin.example:8080", "/", 200).await;
    assert_eq!(connect(setup.till.socket(15080), &inside).await.unwrap().0, 403);
    setup.names.set("httpbin.example", setup.mesh.loopback().host(OTHER_HOST));
    wait_for_status(&setup.till, "httpbin.example:8080", "/", 403).await;
    setup.wait_for_connect(&setup.till, "httpbin.example:5432", 403).await;

    // Names that resolve to forbidden addresses, and the mesh's own ports.
    let names = "hosts = [\"metadata.example\", \"a.wild.example\"]";
    setup
        .mesh
        .write_policy("egress.toml", &egress("db", names, &[(8080, "http"), (5432, "tcp")], ""));
    wait_for_status(&setup.till, "a.wild.example:8080", "/", 200).await;
    assert_eq!(request(&setup.till, "metadata.example:8080", "/").await.unwrap().0, 403);
    assert_eq!(connect(setup.till.socket(15080), "metadata.example:5432").await.unwrap().0, 403);
    setup.till.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn passthrough_allows_all_but_mesh_names_and_forbidden_hosts() {
    let Some(setup) = EgressMesh::open().await else { return };
    let host = "httpbin.example:8080";
    assert_eq!(request(&setup.till, host, "/").await.unwrap().0, 404);
    // Load on an egress, while other egress is closed, open and closed again.
    let wild = egress("wild", "hosts = [\"a.wild.example\"]", &[(8080, "http")], "");
    setup.mesh.write_policy("egress.toml", &wild);
    wait_for_status(&setup.till, "a.wild.example:8080", "/", 200).await;
    let load = Load::start(setup.till.socket(15080), "a.wild.example:8080", "/");
    load.wait_for_status(StatusCode::OK).await;
    let on = "[[namespace]]\nname = \"default\"\negress = \"passthrough\"\n";
    setup.mesh.write_policy("namespace.toml", on);
    wait_for_status(&setup.till, host, "/", 200).await;
    let (status, stream, _) =
        connect(setup.till.socket(15080), "httpbin.example:8443").await.unwrap();
    assert_eq!(status, 200);
    assert_eq!(setup.tls.greeting(stream, "httpbin.example").await.unwrap(), "hello");
    let (_, stream, _) =
        connect(setup.till.socket(15080), &setup.address(OTHER_HOST, 5432)).await.unwrap();
    assert_eq!(TcpConnection::over(stream).line().await.unwrap(), "other");
    // Names of the mesh, an external service without a grant for the till, and addresses that are
    // never called.
    for host in
        ["ledger:8080", "ledger.default:8080", "nobody.mesh.internal:80", "payments.example:8080"]
    {
        assert_eq!(request(&setup.till, host, "/").await.unwrap().0, 404, "{host}");
        assert_eq!(connect(setup.till.socket(15080), host).await.unwrap().0, 403, "{host}");
    }
    let never = [
        "metadata.example:80",
        "169.254.169.254:80",
        "168.63.129.16:80",
        "0.0.0.0:8080",
        "[::ffff:169.254.169.254]:80",
        "[fe80::1]:80",
    ];
    let mine = setup.address(HTTPBIN, 15003);
    for authority in never.into_iter().chain([&*mine]) {
        assert_eq!(
            connect(setup.till.socket(15080), authority).await.unwrap().0,
            403,
            "{authority}"
        );
    }
    setup.mesh.remove_policy("namespace.toml");
    wait_for_status(&setup.till, host, "/", 404).await;
    setup.wait_for_connect(&setup.till, "httpbin.example:8443", 403).await;
    load.wait_for_status(StatusCode::OK).await;
    load.finish().await.assert_undisturbed();
    setup.till.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn external_upstream_listens_only_while_an_egress_allows_it() {
    let Some(setup) = EgressMesh::open().await else { return };
    let at = |host, port| setup.address(host, port);
    let buyer = ProxyOptions::new("default/till", 13)
        .name_server(setup.mesh.loopback().socket(2, 5353))
        .upstream("httpbin.example:8080=18080")
        .upstream("httpbin.example:8443=18443")
        .upstream("httpbin.example:5432=15432")
        .upstream(&format!("{}=15433", at(HTTPBIN, 5432)))
        .upstream(&format!("{}=15434", at(OTHER_HOST, 5432)));
    let till = setup.mesh.envoy(&buyer).await;
    // Without an egress no listener exists, and a finding reports it.
    assert!(TcpConnection::connect(till.socket(18443)).await.is_err());
    eventually("the finding", async || {
        let reported = setup.mesh.proxies().await.to_string();
        anyhow::ensure!(
            reported.contains("no egress allows `default/till` to call it"),
            "{reported}"
        );
        anyhow::Ok(())
    })
    .await;

    let ports = [(8080, "http"), (8443, "https"), (5432, "tcp")];
    let by_host = egress("host", "hosts = [\"httpbin.example\"]", &ports, MATCHES);
    let range = format!("ip_addresses = [\"{}/32\"]", setup.mesh.loopback().host(HTTPBIN));
    let by_address = egress("address", &range, &[(5432, "tcp")], "");
    setup.mesh.write_policy("egress.toml", &format!("{STATUS}{by_host}{by_address}"));
    // All requests go to the host, whatever they name, and are authorized.
    let status = async |path: &str| {
        let mut connection = Http1Connection::connect(till.socket(18080)).await?;
        anyhow::Ok(connection.get(path, "whatever").await?)
    };
    eventually("an answer by the local port", async || {
        let answer = status("/status/200").await?;
        anyhow::ensure!(answer.status == 200, "{}", answer.status);
        anyhow::ensure!(answer.json()["headers"]["host"] == "httpbin.example:8080");
        anyhow::Ok(())
    })
    .await;
    assert_eq!(status("/get").await.unwrap().status, 403);
    // Only TLS for that host passes.
    eventually("TLS by the local port", async || {
        let stream = TcpStream::connect(till.socket(18443)).await?;
        anyhow::ensure!(setup.tls.greeting(stream, "httpbin.example").await? == "hello");
        anyhow::Ok(())
    })
    .await;
    let other = TcpStream::connect(till.socket(18443)).await.unwrap();
    assert!(setup.tls.greeting(other, "other.example").await.is_err());
    let plain = Http1Connection::connect(till.socket(18443)).await.unwrap().get("/", "x").await;
    assert!(plain.is_err(), "{plain:?}");
    // TCP by name and by address; no other address.
    for port in [15432, 15433] {
        eventually("a line by the local port", async || {
            let mut connection = TcpConnection::connect(till.socket(port)).await?;
            anyhow::ensure!(connection.line().await? == "httpbin");
            connection.exchange("a line").await
        })
        .await;
    }
    assert!(TcpConnection::connect(till.socket(15434)).await.is_err());
    // A changed DNS answer redirects no call.
    setup.names.set("httpbin.example", "169.254.169.254".parse().unwrap());
    eventually("the host to be elsewhere", async || {
        let answer = status("/status/200").await?;
        anyhow::ensure!(answer.status == 403, "{}", answer.status);
        let mut connection = TcpConnection::connect(till.socket(15432)).await?;
        anyhow::ensure!(connection.line().await.is_err());
        anyhow::Ok(())
    })
    .await;

    setup.mesh.remove_policy("egress.toml");
    eventually("the listener to be removed", async || {
        for port in [18080, 18443, 15432, 15433] {
            anyhow::ensure!(TcpStream::connect(till.socket(port)).await.is_err(), "{port}");
        }
        anyhow::Ok(())
    })
    .await;
    till.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_changes_fail_no_running_traffic() {
    let Some(setup) = SplitMesh::open("").await else { return };
    let loopback = setup.mesh.loopback();
    let _app = App::http1("outside", loopback.socket(HTTPBIN, 8080)).await;
    let names = NameServer::start(loopback.socket(2, 5353)).await;
    names.set("outside.example", loopback.host(HTTPBIN));
    let of = |name: &str, host: &str, matches: &str| {
        let hosts = format!("hosts = [\"{host}\"]");
        let ports = [(8080, "http"), (8443, "https"), (5432, "tcp")];
        egress(name, &hosts, &ports, matches).replace("\"till\"", "\"buyer\"")
    };
    let kept = STATUS.to_owned() + &of("kept", "outside.example", "");
    setup.mesh.write_policy("egress.toml", &kept);
    let host = "outside.example:8080";
    wait_for_status(&setup.buyer, host, "/", 200).await;

    let load = setup.load().await;
    let _ledger = Ledger::start("outside", loopback.socket(HTTPBIN, 5432)).await;
    let line = setup.buyer.socket(15432);
    let mut outward = None;
    eventually("a connection to the outside", async || {
        let started = Load::start(setup.buyer.socket(15080), host, "/");
        outward = Some(started.with_connection(line).await?);
        anyhow::Ok(())
    })
    .await;
    let outward = outward.unwrap();
    // A connection with TLS from end to end, by CONNECT.
    let tls = TlsServer::start(&["outside.example"], loopback.socket(HTTPBIN, 8443)).await;
    let (_, stream, _) = connect(setup.buyer.socket(15080), "outside.example:8443").await.unwrap();
    let mut held = tls.connection(stream, "outside.example").await.unwrap();
    assert_eq!(held.line().await.unwrap(), "hello");
    let counters = r"^(listener|cluster)_manager\.(listener|cluster)_(added|modified|removed|in_place_updated)$";
    let before = setup.buyer.sum(counters).await;
    let reloads = r"^http\.outbound\.rds\..*\.config_reload$";
    let reloads_before = setup.buyer.sum(reloads).await;
    for round in 0..24 {
        let other = match round % 4 {
            0 => String::new(),
            1 => of("other", "other.example", ""),
            2 => of("other", "other.example", MATCHES),
            _ => of("other", "*.other.example", MATCHES),
        };
        setup.mesh.write_policy("egress.toml", &format!("{kept}{other}"));
        outward.wait_for_requests(100).await;
        held.exchange("still there?").await.unwrap();
    }
    let reloads = setup.buyer.sum(reloads).await - reloads_before;
    assert!(reloads > 10, "the routes have changed {reloads} times only");
    assert_eq!(setup.buyer.sum(counters).await, before, "a listener or a cluster was touched");
    let report = outward.finish().await;
    report.assert_undisturbed();
    assert!(report.connection_lines > 0, "{report:?}");
    setup.assert_no_failures(load).await;
}
