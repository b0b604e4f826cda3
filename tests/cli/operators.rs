//! Operators on the network: who may do what on which listener, bad credentials, and contexts of the command line.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use fs_err as fs;
use ironmesh_admin::{Operation, Permission, operations};
use ironmesh_catalog::OperatorRole;
use ironmesh_tests::process::Child;
use ironmesh_tests::tls::connect_over;
use ironmesh_tests::{Http1Connection, Response, eventually};
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use crate::command::Run;
use crate::server::Server;

/// A control plane with the listener for operators, and with the socket for a group.
pub(crate) async fn start() -> Option<(Server, Child)> {
    let server = Server::open("group_socket = \"group/operators.sock\"")?;
    let folder = server.workspace.path().join("group");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o2750)).unwrap();
    let settings = server.workspace.path().join("ironmesh.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, format!("{text}api = \"{}\"\n", api(&server))).unwrap();
    server.workspace.write("policy/a.toml", "[[service]]\nname = \"store\"\n");
    let child = server.start().await;
    server.ready().await;
    Some((server, child))
}

/// The address of the listener for operators.
pub(crate) fn api(server: &Server) -> SocketAddr {
    server.loopback.socket(1, 15130)
}

/// Succeeds, and returns what it printed.
pub(crate) fn ok(run: Run) -> String {
    assert_eq!(run.code, 0, "{run:?}");
    run.stdout
}

/// Issues a certificate to an operator by the admin socket; its files are `NAME.key` and `NAME.json`.
pub(crate) fn issue(server: &Server, name: &str, role: &str, expires: &str) {
    ok(server.workspace.run(&["operator", "request", name]));
    let csr = format!("{name}.csr");
    ok(server.run(&[
        "operator",
        "issue",
        name,
        "--role",
        role,
        "--csr",
        &csr,
        "--expires",
        expires,
    ]));
}

/// What the file of a credential has.
fn credential(server: &Server, name: &str) -> Value {
    let text = fs::read_to_string(server.workspace.path().join(format!("{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// How a client of the network identifies itself.
#[derive(Debug, Clone)]
enum Identity {
    Nobody,
    Certificate { chain: String, key: String },
    Token(String),
}

fn certificate(server: &Server, name: &str) -> Identity {
    let chain = credential(server, name)["certificate"].as_str().unwrap().to_owned();
    let key = fs::read_to_string(server.workspace.path().join(format!("{name}.key"))).unwrap();
    Identity::Certificate { chain, key }
}

/// Creates a token of an operator by the admin socket.
fn token(server: &Server, name: &str, role: &str, expires: &str) -> Identity {
    ok(server.run(&["operator", "token", name, "--role", role, "--expires", expires]));
    Identity::Token(credential(server, name)["token"].as_str().unwrap().to_owned())
}

/// The text of a new token of an operator.
pub(crate) fn token_text(server: &Server, name: &str, role: &str, expires: &str) -> String {
    token(server, name, role, expires);
    credential(server, name)["token"].as_str().unwrap().to_owned()
}

/// The roots of the mesh. Operator root has a credential.
pub(crate) fn roots(server: &Server) -> String {
    credential(server, "root")["roots"].as_str().unwrap().to_owned()
}

/// The same as a stream of bytes.
pub(crate) async fn network_stream(server: &Server) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(api(server)).await.unwrap();
    let roots = roots(server);
    connect_over(stream, "control-plane.internal", &["http/1.1"], None, &roots).await.unwrap()
}

/// A connection without a credential to the listener for operators. Operator root has one.
pub(crate) async fn network(server: &Server) -> Http1Connection {
    connect(server, &Identity::Nobody).await.unwrap().0
}

/// A connection to the listener for operators, with the headers of its requests.
async fn connect(
    server: &Server,
    identity: &Identity,
) -> anyhow::Result<(Http1Connection, Vec<(String, String)>)> {
    let (address, roots) = (api(server), roots(server));
    let pair = match identity {
        Identity::Certificate { chain, key } => Some((chain.as_str(), key.as_str())),
        _ => None,
    };
    let stream = TcpStream::connect(address).await?;
    let stream =
        connect_over(stream, "control-plane.internal", &["http/1.1"], pair, &roots).await?;
    let mut headers = vec![("host".to_owned(), address.to_string())];
    if let Identity::Token(token) = identity {
        headers.push(("authorization".to_owned(), format!("Bearer {token}")));
    }
    Ok((Http1Connection::over(stream).await?, headers))
}

async fn request(
    server: &Server,
    identity: &Identity,
    method: &http::Method,
    path: &str,
) -> anyhow::Result<Response> {
    let (mut connection, headers) = connect(server, identity).await?;
    let headers: Vec<_> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    connection.request(method.clone(), path, &headers).await
}

/// Who sends requests, by which listener.
#[derive(Debug)]
enum Caller {
    Socket,
    Group,
    Port,
    Network(Option<OperatorRole>, Identity),
}

impl Caller {
    /// What the reference of roles says about this caller.
    fn expected(&self, permission: Permission) -> Expected {
        let role = match self {
            Self::Socket => Some(OperatorRole::Admin),
            Self::Group | Self::Port
                if permission.least_role().is_some() && !permission.is_read() =>
            {
                return Expected::Forbidden;
            }
            Self::Group => Some(OperatorRole::Operator),
            Self::Port => Some(OperatorRole::Viewer),
            Self::Network(role, _) => *role,
        };
        match (permission.least_role(), role) {
            (None, _) => Expected::Allowed,
            (Some(_), None) => Expected::Unauthenticated,
            (Some(least), Some(role)) if role >= least => Expected::Allowed,
            _ => Expected::Forbidden,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Allowed,
    Unauthenticated,
    Forbidden,
}

/// A path of the operation whose object does not exist, so that nothing changes. Streams end.
fn example_path(operation: &Operation) -> String {
    if operation.id == "events" {
        return format!("{}?follow=false", operation.path);
    }
    operation
        .path
        .replace("{namespace}", "default")
        .replace("{name}", "none")
        .replace("{id}", "none")
}

/// Each operation of the table at each listener, by each role.
#[tokio::test]
async fn operations_are_allowed_by_role_on_each_listener() {
    let Some((server, _child)) = start().await else { return };
    // Its file has the roots, too.
    token(&server, "root", "admin", "1h");
    issue(&server, "ann", "admin", "1h");
    issue(&server, "otto", "operator", "1h");
    issue(&server, "vera", "viewer", "1h");
    let callers = [
        Caller::Socket,
        Caller::Group,
        Caller::Port,
        Caller::Network(None, Identity::Nobody),
        Caller::Network(Some(OperatorRole::Viewer), certificate(&server, "vera")),
        Caller::Network(Some(OperatorRole::Operator), certificate(&server, "otto")),
        Caller::Network(Some(OperatorRole::Admin), certificate(&server, "ann")),
        Caller::Network(Some(OperatorRole::Viewer), token(&server, "script", "viewer", "1h")),
    ];
    for caller in &callers {
        for operation in operations() {
            let path = example_path(&operation);
            let answer = match caller {
                Caller::Network(_, identity) => {
                    request(&server, identity, operation.method, &path).await.unwrap()
                }
                Caller::Port => {
                    let address = server.loopback.socket(1, 15014);
                    let mut connection = Http1Connection::connect(address).await.unwrap();
                    let headers = [("host", "localhost")];
                    connection.request(operation.method.clone(), &path, &headers).await.unwrap()
                }
                Caller::Socket | Caller::Group => {
                    let socket = match caller {
                        Caller::Socket => "state/admin.sock",
                        _ => "group/operators.sock",
                    };
                    let socket = server.workspace.path().join(socket);
                    let stream = UnixStream::connect(socket).await.unwrap();
                    let mut connection = Http1Connection::over(stream).await.unwrap();
                    let headers = [("host", "ironmesh")];
                    connection.request(operation.method.clone(), &path, &headers).await.unwrap()
                }
            };
            let found = match answer.status.as_u16() {
                401 => Expected::Unauthenticated,
                403 => Expected::Forbidden,
                _ => Expected::Allowed,
            };
            let expected = caller.expected(operation.permission);
            assert_eq!(found, expected, "{caller:?}, {}: {}", operation.id, answer.text());
            if found != Expected::Allowed {
                assert!(answer.json()["error"].is_string(), "{}", answer.text());
            }
        }
    }
    // The journal has the rejected and made changes of operators with their names.
    let journal = server.run(&["journal", "--kind", "operator"]);
    assert!(ok(journal).contains("vera"));
}

/// A member of the group cannot see the state folder.
#[tokio::test]
async fn member_of_the_group_reads_by_its_socket() {
    let Some((server, _child)) = start().await else { return };
    let settings = fs::read_to_string(server.workspace.path().join("ironmesh.toml")).unwrap();
    let elsewhere = settings.replace("state = \"state\"", "state = \"hidden\"");
    server.workspace.write("member.toml", &elsewhere);
    let run = |arguments: &[&str]| {
        server.workspace.run(&[arguments, &["--config", "member.toml"]].concat())
    };
    assert!(ok(run(&["journal"])).starts_with("TIME"));
    let status = run(&["status"]);
    assert!(status.stdout.contains("control plane  ready"), "{status:?}");
    let rejected = run(&["proxy", "revoke", "none", "--reason", "test"]);
    assert_eq!(rejected.code, 1, "{rejected:?}");
    assert!(rejected.stderr.contains("this socket only reads"), "{rejected:?}");

    // A second control plane does not take the socket from the first.
    let (xds, admin) = (server.loopback.socket(2, 15128), server.loopback.socket(2, 15014));
    let second = format!(
        "group_socket = \"group/operators.sock\"\nstate = \"second\"\npolicy = \"policy\"\n[listen]\nxds = \"{xds}\"\nadmin = \"{admin}\"\n"
    );
    server.workspace.write("second.toml", &second);
    let run = server.workspace.run(&["serve", "--config", "second.toml"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("a process answers on the socket"), "{run:?}");
    assert!(!server.workspace.path().join("second").exists());
}

#[tokio::test]
async fn bad_credentials_are_rejected() {
    let Some((server, _child)) = start().await else { return };
    let good = token(&server, "root", "admin", "1h");
    let get = async |identity: &Identity| {
        request(&server, identity, &http::Method::GET, "/v1/proxies").await
    };
    assert_eq!(get(&good).await.unwrap().status, 200);
    // Tokens: unknown, truncated, expired, revoked.
    let Identity::Token(text) = &good else { panic!() };
    for bad in [&text[..text.len() - 1], "imo1_0123456789abcdef_00", "x"] {
        assert_eq!(get(&Identity::Token(bad.to_owned())).await.unwrap().status, 401, "{bad}");
    }
    let short = token(&server, "short", "viewer", "1s");
    eventually("the token to expire", async || match get(&short).await?.status.as_u16() {
        401 => Ok(()),
        other => Err(anyhow::anyhow!("{other}")),
    })
    .await;
    // A certificate that is revoked, also on an open connection.
    issue(&server, "ann", "viewer", "1h");
    let ann = certificate(&server, "ann");
    let (mut open, headers) = connect(&server, &ann).await.unwrap();
    let headers: Vec<_> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    let answer = open.request(http::Method::GET, "/v1/proxies", &headers).await.unwrap();
    assert_eq!(answer.status, 200);
    let revoked = ok(server.run(&["operator", "revoke", "ann", "--reason", "left"]));
    assert_eq!(revoked, "operator ann has no access any more\n");
    let answer = open.request(http::Method::GET, "/v1/proxies", &headers).await.unwrap();
    assert_eq!(answer.status, 401, "{}", answer.text());
    assert!(answer.text().contains("revoked"), "{}", answer.text());
    // One that has expired fails in the handshake, or by its record, which is as exact.
    issue(&server, "brief", "viewer", "1s");
    let brief = certificate(&server, "brief");
    eventually("the certificate to expire", async || match get(&brief).await {
        Err(_) => Ok(()),
        Ok(answer) if answer.status == 401 => Ok(()),
        Ok(answer) => Err(anyhow::anyhow!("{}", answer.text())),
    })
    .await;
    // A proxy's is a valid client certificate of the mesh, and no operator's.
    ok(server.run(&[
        "proxy",
        "bootstrap",
        "--service",
        "store",
        "--address",
        "127.0.0.9",
        "--out",
        "p",
    ]));
    let read =
        |file: &str| fs::read_to_string(server.workspace.path().join("p").join(file)).unwrap();
    let proxy = Identity::Certificate { chain: read("proxy.crt"), key: read("proxy.key") };
    let answer = get(&proxy).await.unwrap();
    assert_eq!(answer.status, 401, "{}", answer.text());
    assert!(answer.text().contains("not an operator's"), "{}", answer.text());
    // A page of another name, and one that sends a change with the browser's certificate.
    let (mut connection, _) = connect(&server, &good).await.unwrap();
    let bearer = format!("Bearer {text}");
    let host = [("host", "evil.example"), ("authorization", &*bearer)];
    let answer = connection.request(http::Method::GET, "/v1/proxies", &host).await.unwrap();
    assert_eq!(answer.status, 421);
    let host = server.loopback.socket(1, 15130).to_string();
    let cross = [("host", &*host), ("authorization", &*bearer), ("origin", "https://evil.example")];
    let path = "/v1/endpoints/default/store/accept";
    let answer = connection.request(http::Method::POST, path, &cross).await.unwrap();
    assert_eq!(answer.status, 403, "{}", answer.text());
}

#[tokio::test]
async fn context_reaches_the_mesh_as_an_operator() {
    let Some((server, mut child)) = start().await else { return };
    issue(&server, "ann", "admin", "1h");
    issue(&server, "bob", "operator", "1h");
    let remote = |arguments: &[&str]| server.workspace.run(arguments);
    // Certificate and key must belong together.
    let wrong = ["context", "add", "prod", "--credential", "ann.json", "--key", "bob.key"];
    let run = remote(&wrong);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("cannot be used together"), "{run:?}");
    ok(remote(&["context", "add", "prod", "--credential", "ann.json", "--key", "ann.key"]));
    ok(remote(&["context", "add", "as-bob", "--credential", "bob.json", "--key", "bob.key"]));
    let file = server.workspace.path().join("config/ironmesh/contexts/prod.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // By the flag, then as the current context.
    assert!(ok(remote(&["status", "--context", "prod"])).contains("policy"));
    ok(remote(&["context", "use", "prod"]));
    let list = ok(remote(&["context", "list"]));
    assert!(list.contains("* prod") && list.contains("as ann (admin)"), "{list}");
    ok(remote(&["proxy", "list"]));
    // Rights are those of the role.
    let args = ["operator", "token", "ci", "--role", "viewer", "--context", "as-bob"];
    let run = remote(&args);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("needs the role admin"), "{run:?}");
    ok(remote(&["operator", "token", "ci", "--role", "viewer"]));
    ok(remote(&["context", "add", "ci", "--credential", "ci.json"]));
    ok(remote(&["cert", "list", "--context", "ci"]));
    // The last admin cannot lock everybody out over the network.
    let run = remote(&["operator", "revoke", "ann"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("last admin"), "{run:?}");
    // The journal names the operator.
    let entries = server.json(&["journal", "--kind", "operator"]);
    let by_ann = entries["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["who"]["type"] == "operator" && entry["who"]["name"] == "ann");
    let by_ann: Vec<_> = by_ann.map(|entry| entry["outcome"].as_str().unwrap()).collect();
    assert_eq!(by_ann, ["done", "rejected"], "{entries:#}");
    // An explicit settings file is the control plane of this machine.
    assert_eq!(ok(server.run(&["operator", "list"])).lines().count(), 4);
    assert!(child.terminate().await.success());
    let run = remote(&["proxy", "list"]);
    assert_eq!(run.code, 4, "{run:?}");
    assert!(run.stderr.contains("listen.api"), "{run:?}");
    ok(remote(&["context", "remove", "prod"]));
    assert!(ok(remote(&["context", "list"])).contains("* local"));
}

/// Changes must never go to another mesh than the command line names.
#[tokio::test]
async fn flags_choose_the_mesh_before_variables() {
    let Some((here, _child)) = start().await else { return };
    let Some((there, _other)) = start().await else { return };
    // A context of `here` for the mesh of `there`.
    token(&there, "ann", "admin", "1h");
    let file = there.workspace.path().join("ann.json");
    let add = ["context", "add", "there", "--credential", file.to_str().unwrap()];
    ok(here.workspace.run(&add));
    ok(there.run(&["proxy", "token", "--service", "store"]));
    // The number of tokens distinguishes the meshes.
    let tokens = |arguments: &[&str], variables: &[(&str, &str)]| {
        let list = ["proxy", "token", "list", "--output", "json"];
        let mut command = here.workspace.command(&[&list[..], arguments].concat());
        command.envs(variables.iter().copied());
        let run = crate::command::finish(&mut command);
        if run.code != 0 {
            return Err((run.code, run.stderr));
        }
        let list: Value = serde_json::from_str(&run.stdout).unwrap();
        Ok(list["tokens"].as_array().unwrap().len())
    };
    let (context, settings) = (("IRONMESH_CONTEXT", "there"), ("IRONMESH_CONFIG", "ironmesh.toml"));
    assert_eq!(tokens(&["--config", "ironmesh.toml"], &[]), Ok(0));
    assert_eq!(tokens(&["--context", "there"], &[]), Ok(1));
    assert_eq!(tokens(&[], &[context]), Ok(1));
    // A flag beats each variable.
    assert_eq!(tokens(&["--config", "ironmesh.toml"], &[context]), Ok(0));
    assert_eq!(tokens(&["--context", "local"], &[context, settings]), Ok(0));
    assert_eq!(tokens(&["--context", "there"], &[settings]), Ok(1));
    // A variable for all commands of a machine ends no context.
    ok(here.workspace.run(&["context", "use", "there"]));
    assert_eq!(tokens(&[], &[settings]), Ok(1));
    assert_eq!(tokens(&["--context", "local"], &[settings]), Ok(0));
    // An unused server does not disturb.
    let server = ("IRONMESH_SERVER", "127.0.0.1:1");
    assert_eq!(tokens(&["--context", "local"], &[settings, server]), Ok(0));
    assert_eq!(tokens(&[], &[server]).unwrap_err().0, 4);
    let (code, error) =
        tokens(&["--config", "ironmesh.toml", "--context", "there"], &[]).unwrap_err();
    assert!(code == 2 && error.contains("leave one out"), "{error}");
    // The source of policy is that of the other mesh, not the one that settings here would name.
    ok(here.workspace.run(&["policy", "revisions"]));
    let run = here.workspace.run(&["policy", "apply", "policy"]);
    assert!(run.code != 0 && run.stderr.contains("policy comes from the folder"), "{run:?}");
    let theirs = there.workspace.path().join("policy").display().to_string();
    assert!(run.stderr.contains(&theirs), "{run:?}");
    let run = here.workspace.run(&["policy", "push", "policy"]);
    assert!(run.code == 2 && run.stderr.contains("--context local"), "{run:?}");
}

#[tokio::test]
async fn expired_and_revoked_contexts_say_so() {
    let Some((server, _child)) = start().await else { return };
    token(&server, "short", "viewer", "1s");
    token(&server, "gone", "viewer", "1h");
    for name in ["short", "gone"] {
        let file = format!("{name}.json");
        ok(server.workspace.run(&["context", "add", name, "--credential", &file]));
    }
    let status = |context: &str| server.workspace.run(&["status", "--context", context]);
    eventually("the credential to expire", async || match status("short") {
        run if run.stderr.contains("the credential of context short expired at") => Ok(()),
        run => Err(format!("{run:?}")),
    })
    .await;
    ok(server.run(&["operator", "revoke", "gone"]));
    let run = status("gone");
    assert!(
        run.code == 1 && run.stderr.contains("the token of operator gone is revoked"),
        "{run:?}"
    );
}
