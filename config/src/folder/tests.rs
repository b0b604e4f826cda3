use std::os::unix::fs::symlink;

use fs_err as fs;
use tempfile::TempDir;

use super::*;

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn paths(path: &Path) -> Vec<String> {
    let folder = read_folder(path).unwrap();
    assert!(folder.findings.is_empty(), "{:#?}", folder.findings);
    folder.documents.iter().map(|document| document.path.to_string()).collect()
}

fn problems(path: &Path) -> Vec<String> {
    let findings = read_folder(path).unwrap().findings;
    findings.into_iter().map(|finding| finding.message).collect()
}

#[test]
fn all_files_of_policy_are_read_in_order_but_for_hidden_ones() {
    let folder = folder(&[
        ("b.toml", b"# b"),
        ("c.yaml", b"# c"),
        ("a/c.yml", b""),
        ("d.yaml.orig", b""),
        (".hidden.yaml", b""),
        ("a/z.toml", b""),
        ("a.toml", b""),
        ("notes.md", b""),
        (".hidden.toml", b""),
        (".git/config.toml", b""),
    ]);
    assert_eq!(paths(folder.path()), ["a.toml", "a/c.yml", "a/z.toml", "b.toml", "c.yaml"]);
    assert_eq!(&*read_folder(folder.path()).unwrap().documents[3].text, "# b");
}

#[test]
fn an_empty_folder_and_a_single_file_are_legal() {
    let folder = folder(&[("a.toml", b"[[service]]\nname = \"a\"\n"), ("empty/x.md", b"")]);
    assert!(paths(&folder.path().join("empty")).is_empty());
    assert_eq!(paths(&folder.path().join("a.toml")), ["a.toml"]);
    assert!(load_folder(folder.path()).unwrap().specification.is_some());
}

#[test]
fn a_single_file_of_yaml_is_a_policy_too() {
    let text = b"apiVersion: v1\nkind: Service\nmetadata: { name: a }\n";
    let folder = folder(&[("a.yaml", text), ("b.yml", text)]);
    for file in ["a.yaml", "b.yml"] {
        let loaded = load_folder(&folder.path().join(file)).unwrap();
        assert_eq!(loaded.specification.unwrap().services.len(), 1, "{file}");
    }
    assert!(load_folder(folder.path()).unwrap().specification.is_none(), "defined twice");
    let wrong = folder.path().join("c.yaml");
    fs::write(&wrong, b"name: \xff\n").unwrap();
    let message = &read_folder(&wrong).unwrap().findings[0].message;
    assert_eq!(message, "`c.yaml` cannot be read: it is not UTF-8 from byte 6 on");
}

#[test]
fn links_are_followed_into_hidden_folders_as_well() {
    // As Kubernetes mounts a config map.
    let folder = folder(&[("..2026/a.toml", b"# a")]);
    symlink("..2026", folder.path().join("..data")).unwrap();
    symlink("..data/a.toml", folder.path().join("a.toml")).unwrap();
    assert_eq!(paths(folder.path()), ["a.toml"]);
}

#[test]
fn links_that_lead_back_or_nowhere_are_findings() {
    let folder = folder(&[("a/b/c.toml", b"")]);
    symlink("..", folder.path().join("a/b/up")).unwrap();
    symlink("nothing", folder.path().join("gone.toml")).unwrap();
    symlink("self.toml", folder.path().join("self.toml")).unwrap();
    let told = problems(folder.path());
    assert_eq!(told.len(), 3, "{told:#?}");
    assert!(told[0].contains("`a/b/up`") && told[0].contains("leads back"), "{told:#?}");
    assert!(told[1].contains("link to nothing"), "{told:#?}");
}

#[test]
fn a_file_that_is_not_text_is_a_finding_and_the_others_are_read() {
    let folder = folder(&[("a.toml", b"x = \xff"), ("b.toml", b"")]);
    fs::create_dir_all(folder.path().join("c.toml")).unwrap();
    let read = read_folder(folder.path()).unwrap();
    assert_eq!(read.documents.len(), 1);
    assert_eq!(read.findings.len(), 1);
    assert_eq!(
        read.findings[0].to_string(),
        "error[IM0107]: `a.toml` cannot be read: it is not UTF-8 from byte 4 on (a.toml:1:1)"
    );
    let loaded = load_folder(folder.path()).unwrap();
    assert!(loaded.specification.is_none());
    // What cannot be read makes another revision than what is not there.
    fs::remove_file(folder.path().join("a.toml")).unwrap();
    assert_ne!(load_folder(folder.path()).unwrap().revision, loaded.revision);
}

#[test]
fn a_file_beyond_the_limit_is_a_finding() {
    let folder = folder(&[]);
    let file = fs::File::create(folder.path().join("big.toml")).unwrap();
    file.set_len(4 * 1024 * 1024 + 1).unwrap();
    assert_eq!(problems(folder.path()), ["`big.toml` cannot be read: it is larger than 4 MiB"]);
}

#[test]
fn what_is_no_regular_file_is_a_finding_and_nobody_waits_for_it() {
    let folder = folder(&[("a.toml", b"")]);
    let at = |name: &str| folder.path().join(name);
    // Reading a pipe would wait for who writes to it; reading a device may never end.
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe.toml"), mode).unwrap();
    symlink("pipe.toml", at("link-to-pipe.toml")).unwrap();
    symlink("/dev/zero", at("device.toml")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket.toml")).unwrap();
    let told = problems(folder.path());
    assert_eq!(
        told,
        ["device", "link-to-pipe", "pipe", "socket"]
            .map(|name| format!("`{name}.toml` cannot be read: it is not a regular file"))
    );
}

/// Each folder leads to the next in two ways, so that there are as many ways as 2 to the power of 30.
#[test]
fn folders_that_are_found_on_many_ways_are_too_many() {
    let folder = folder(&[]);
    for n in 0..30 {
        let inner = folder.path().join(format!("{n}"));
        fs::create_dir(&inner).unwrap();
        for link in ["a", "b"] {
            symlink(format!("../{}", n + 1), inner.join(link)).unwrap();
        }
    }
    fs::create_dir(folder.path().join("30")).unwrap();
    let told: Vec<_> =
        read_folder(folder.path()).unwrap().findings.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["error[IM0113]: there are more than 10000 folders in the policy folder"]);
}

#[test]
fn a_path_that_is_no_policy_folder_is_an_error_that_says_what_to_do() {
    let folder = folder(&[("a.md", b"")]);
    let error = read_folder(&folder.path().join("none")).unwrap_err();
    assert!(matches!(error, FolderError::Missing { .. }));
    assert!(error.to_string().contains("none`: create it"), "{error}");
    let error = read_folder(&folder.path().join("a.md")).unwrap_err();
    assert!(matches!(error, FolderError::NotAFolder { .. }), "{error}");
    let error = read_folder(&folder.path().join("a.md/x")).unwrap_err();
    assert!(matches!(error, FolderError::NotAFolder { .. }), "{error}");
}
