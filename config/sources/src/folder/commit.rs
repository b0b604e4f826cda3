//! The git commit of a policy folder, as `git` itself reports it: only git knows the meaning of ignored
//! files, work trees, filters and untrusted owners.
//!
//! git needs some milliseconds, and longer in a large checkout, so no other task may wait for it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use fs_err as fs;
use tokio::process::Command;
use tokio::time::timeout;

use super::listing::is_document;

/// The reason why the commit of a checkout is not known.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// git is not installed.
    #[error("`{path}` is in a git checkout, and `git` cannot be run: install it to see commits")]
    NoGit {
        /// The policy folder.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// git fails, for example because another user owns the checkout.
    #[error("git does not report the commit of `{path}`: {problem}")]
    GitFailed {
        /// The policy folder.
        path: PathBuf,
        /// The error of git.
        problem: String,
    },
}

/// The most time that git may need.
const PATIENCE: Duration = Duration::from_secs(10);

/// The digits of a commit that are shown.
const DIGITS: usize = 12;

/// The commit of the checkout with the policy folder, or the one document, at `path`. It ends with `+dirty`
/// if the documents differ from that commit. `None` outside of a checkout, and before the first commit.
pub async fn commit_of(path: &Path) -> Result<Option<String>, CommitError> {
    let Some((root, within)) = checkout(path) else { return Ok(None) };
    let git_failed = |problem: String| CommitError::GitFailed { path: path.to_owned(), problem };
    let mut git = git(&root);
    git.args(["status", "--porcelain=v2", "--branch", "-z"]);
    git.args(["--untracked-files=all", "--ignored=traditional", "--"]).arg(pathspec(&within));
    let output = timeout(PATIENCE, git.output())
        .await
        .map_err(|_| git_failed(format!("no answer within {} s", PATIENCE.as_secs())))?
        .map_err(|source| CommitError::NoGit { path: path.to_owned(), source })?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(git_failed(words.lines().next().unwrap_or("git reports no reason").to_owned()));
    }
    Ok(commit_in(&String::from_utf8_lossy(&output.stdout), &within))
}

/// The author of the newest commit up to `commit` that changed the policy folder, or the one document, at `path`: name
/// and address, as the commit states them. `None` if git does not report it.
pub async fn author_of(path: &Path, commit: &str) -> Option<String> {
    let (root, within) = checkout(path)?;
    let mut git = git(&root);
    git.args(["-c", "log.showSignature=false", "log", "-1", "--format=%an <%ae>"]);
    git.args(["--end-of-options", commit, "--"]).arg(pathspec(&within));
    let output = timeout(PATIENCE, git.output()).await.ok()?.ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// The root of the checkout with `path`, and the path below it.
fn checkout(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let resolved = fs::canonicalize(path).ok()?;
    let root = resolved.ancestors().find(|above| above.join(".git").exists())?;
    Some((root.to_owned(), resolved.strip_prefix(root).ok()?.to_owned()))
}

fn pathspec(within: &Path) -> &Path {
    if within.as_os_str().is_empty() { Path::new(".") } else { within }
}

/// A call of git in the checkout at `root`. It only reads: git takes no lock, runs no program that the checkout names,
/// and fetches nothing that a partial clone lacks.
fn git(root: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(root);
    git.args(["--no-optional-locks", "--literal-pathspecs", "-c", "core.fsmonitor=false"]);
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"] {
        git.env_remove(variable);
    }
    git.env("GIT_NO_LAZY_FETCH", "1");
    git.env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true);
    git
}

/// Parses the output of `git status --porcelain=v2 --branch -z` for the folder `within` the checkout.
fn commit_in(status: &str, within: &Path) -> Option<String> {
    let mut commit = None;
    let mut is_dirty = false;
    let mut entries = status.split('\0');
    while let Some(entry) = entries.next() {
        if let Some(id) = entry.strip_prefix("# branch.oid ") {
            commit = id.get(..DIGITS).filter(|_| id != "(initial)");
            continue;
        }
        // The number of fields before the path.
        let words = match entry.chars().next() {
            Some('1') => 8,
            Some('2') => 9,
            Some('u') => 10,
            Some('?' | '!') => 1,
            _ => continue,
        };
        is_dirty |=
            entry.splitn(words + 1, ' ').nth(words).is_some_and(|path| is_read(path, within));
        if words == 9 {
            // The earlier path of a renamed file.
            is_dirty |= entries.next().is_some_and(|path| is_read(path, within));
        }
    }
    commit.map(|commit| format!("{commit}{}", if is_dirty { "+dirty" } else { "" }))
}

/// Whether `path` is read as policy: its extension is one of policy, and it is not hidden.
fn is_read(path: &str, within: &Path) -> bool {
    let path = Path::new(path);
    let below = path.strip_prefix(within).unwrap_or(path);
    is_document(path) && !below.iter().any(|part| part.as_encoded_bytes().starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    /// A new repository, independent of any user's settings.
    struct Checkout(tempfile::TempDir);

    impl Checkout {
        /// `None` if git is not installed, so that the test is skipped.
        fn new() -> Option<Self> {
            let checkout = Self(tempfile::tempdir().unwrap());
            match process::Command::new("git").arg("--version").output() {
                Ok(_) => checkout.git(&["init", "--quiet"]),
                Err(error) if std::env::var("CI").as_deref() == Ok("true") => panic!("{error}"),
                Err(_) => return None,
            }
            Some(checkout)
        }

        fn git(&self, arguments: &[&str]) {
            let mut git = process::Command::new("git");
            git.current_dir(self.0.path()).args(["-c", "user.name=x", "-c", "user.email=x@x"]);
            git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
            let output = git.args(arguments).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.0.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn head(&self) -> String {
            let head = process::Command::new("git")
                .current_dir(self.0.path())
                .args(["rev-parse", "--short=12", "HEAD"])
                .output()
                .unwrap();
            String::from_utf8(head.stdout).unwrap().trim().to_owned()
        }
    }

    #[tokio::test]
    async fn commit_is_reported_and_dirty_if_documents_differ() {
        let Some(checkout) = Checkout::new() else {
            eprintln!("SKIPPED: git is missing");
            return;
        };
        let folder = checkout.0.path().join("pölicy x");
        let commit = async || commit_of(&folder).await.unwrap();
        checkout.write("pölicy x/a.toml", "# a");
        checkout.write("pölicy x/.hidden.toml", "");
        checkout.write("README", "");
        checkout.write("other/b.toml", "");
        assert_eq!(commit().await, None, "nothing has been committed");
        checkout.git(&["add", "."]);
        checkout.git(&["commit", "--quiet", "--message", "1"]);
        let first = checkout.head();
        assert_eq!(commit().await.as_deref(), Some(&*first));
        let author = async |path: &Path| author_of(path, &first).await;
        assert_eq!(author(&folder).await.as_deref(), Some("x <x@x>"));
        assert_eq!(author(&checkout.0.path().join("other/new")).await, None);
        // Files that are no policy of this folder have no effect.
        checkout.write("README", "more");
        checkout.write("other/b.toml", "more");
        checkout.write("other/new.toml", "");
        checkout.write("pölicy x/notes.txt", "");
        checkout.write("pölicy x/.hidden.toml", "more");
        assert_eq!(commit().await.as_deref(), Some(&*first));
        let dirty = format!("{first}+dirty");
        checkout.write("pölicy x/a.toml", "# edited");
        assert_eq!(commit().await.as_ref(), Some(&dirty));
        assert_eq!(commit_of(&folder.join("a.toml")).await.unwrap().as_ref(), Some(&dirty));
        checkout.write("pölicy x/a.toml", "# a");
        assert_eq!(commit().await.as_deref(), Some(&*first));
        checkout.write("pölicy x/deep/new.toml", "");
        assert_eq!(commit().await.as_ref(), Some(&dirty), "one that git does not know");
        checkout.write(".gitignore", "new.toml\n");
        assert_eq!(commit().await.as_ref(), Some(&dirty), "one that git does not look at");
        fs::remove_dir_all(folder.join("deep")).unwrap();
        checkout.git(&["mv", "pölicy x/a.toml", "other/a.toml"]);
        assert_eq!(commit().await.as_ref(), Some(&dirty), "one that went elsewhere");
        checkout.git(&["commit", "--quiet", "--all", "--message", "2"]);
        assert_eq!(commit().await, Some(checkout.head()));
        assert_ne!(checkout.head(), first);
        // The author is that of the commit that was asked for, whichever is the newest.
        checkout.write("pölicy x/b.toml", "# b");
        checkout.git(&["add", "."]);
        checkout.git(&["commit", "--quiet", "--message", "3", "--author", "y <y@y>"]);
        let newest = author_of(&folder, &checkout.head()).await;
        assert_eq!(newest.as_deref(), Some("y <y@y>"));
        assert_eq!(author(&folder).await.as_deref(), Some("x <x@x>"));
        assert_eq!(author_of(&folder, "--all").await, None);
    }

    #[tokio::test]
    async fn folder_without_checkout_has_no_commit_and_broken_one_fails() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(commit_of(folder.path()).await.unwrap(), None);
        assert_eq!(commit_of(&folder.path().join("nothing")).await.unwrap(), None);
        fs::write(folder.path().join(".git"), "gitdir: /nowhere").unwrap();
        let reported = commit_of(folder.path()).await.unwrap_err().to_string();
        assert!(
            reported.contains("not a git repository") || reported.contains("cannot be run"),
            "{reported}"
        );
    }
}
