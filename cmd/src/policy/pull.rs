//! `ironmesh policy pull`: writes a policy revision from etcd to a folder.

use std::path::Path;

use ironmesh_command_line::{Output, PullArguments};
use ironmesh_config_sources::Pushed;
use ironmesh_sidecar_folder::NewFolder;
use serde_json::json;

use super::check::counted;
use super::open_etcd;
use ironmesh_terminal::stdout::outln;

/// Writes all documents, or none.
pub(crate) async fn pull(arguments: PullArguments, output: Output) -> anyhow::Result<()> {
    let mut etcd = open_etcd(&arguments.config)?;
    let Pushed { record, documents } = match &arguments.revision {
        None => etcd.current().await?,
        Some(revision) => etcd.policy(revision).await?,
    };
    let is_empty = |path: &Path| path.read_dir().is_ok_and(|mut entries| entries.next().is_none());
    if is_empty(&arguments.path) {
        fs_err::remove_dir(&arguments.path)?;
    }
    let folder = NewFolder::create(&arguments.path, 0o777)?;
    let files = documents.iter().map(|document| (Path::new(&*document.path), &*document.text));
    folder.write_all(files, 0o666)?;
    folder.finish()?;
    let path = arguments.path.display();
    match output {
        Output::Json => {
            let path = path.to_string();
            outln!(
                "{:#}",
                json!({ "path": path, "documents": documents.len(), "policy": record })
            )?;
        }
        Output::Text => {
            let count = counted(documents.len(), "document");
            outln!("wrote revision {} to `{path}`: {count}", record.revision)?;
        }
    }
    Ok(())
}
