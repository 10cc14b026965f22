//! An editor's `initialize`: what it may ask for, who answers, and the session that its commands mean.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use ostler_proto::{
    VERSION,
    editor::{EditorHello, EditorOptions},
    id, limits,
    methods::{Hello, OpenSession, OpenedSession, SupervisorHello},
    refusal::{Refusal, RefusalKind},
};
use serde_json::{Value, json};
use tower_lsp::ls_types::Uri;

use crate::{
    caller::Caller,
    methods::{self, Serve},
    params, secret,
};

/// How long the disk of a workspace may take to say where it really is.
const DISK: Duration = Duration::from_secs(1);

/// Tells whether it is an editor that says `initialize`.
pub(super) fn is_editors(params: Option<&Value>) -> bool {
    params.is_some_and(|p| p.get("capabilities").is_some_and(Value::is_object))
}

/// Answers it.
///
/// # Errors
/// An option is wrong, or its session cannot be opened.
pub(super) async fn answer(caller: &Caller, params: &Value) -> Result<Value, Refusal> {
    let options = params.get("initializationOptions").cloned();
    let mut options: EditorOptions =
        params::read(options.unwrap_or_default()).map_err(|refusal| inside(&refusal))?;
    let hello = Hello {
        protocol: None,
        client: client(params),
        owner_key: options.owner_key.take(),
    };
    let hello = SupervisorHello::serve(caller.clone(), hello).await?;
    let opened = open(caller, params, &options).await?;
    let progress = &params["capabilities"]["window"]["workDoneProgress"];
    caller
        .editor()
        .introduce(progress.as_bool() == Some(true), options);
    let experimental = EditorHello {
        hello,
        session: opened.session,
        token: opened.token,
    };
    Ok(json!({
        "capabilities": {
            "executeCommandProvider": methods::provider(),
            "experimental": { "ostler": experimental },
        },
        "serverInfo": { "name": "ostler", "version": VERSION },
    }))
}

/// A field of the options, as the editor has it.
fn inside(refusal: &Refusal) -> Refusal {
    let field = refusal.data.get("field").and_then(Value::as_str);
    let field = match field {
        Some(field) if field != "params" => format!("initializationOptions.{field}"),
        _ => "initializationOptions".into(),
    };
    let why = refusal.message.split_once("` ").map(|(_, why)| why);
    Refusal::bad(&field, why.unwrap_or(&refusal.message))
}

/// Name and version, for the log.
fn client(params: &Value) -> Option<String> {
    let name = params["clientInfo"]["name"].as_str()?;
    let version = params["clientInfo"]["version"].as_str().unwrap_or_default();
    Some(format!("{name} {version}").trim_end().to_owned())
}

/// Opens the session of the options, else the one of this editor and its workspace.
async fn open(
    caller: &Caller,
    params: &Value,
    options: &EditorOptions,
) -> Result<OpenedSession, Refusal> {
    let root = match root(params) {
        Some(root) => Some(real(root).await),
        None => None,
    };
    let bytes = root.as_deref().map_or(&b""[..], |root| {
        std::os::unix::ffi::OsStrExt::as_bytes(root.as_os_str())
    });
    let folder = root.as_deref().and_then(Path::file_name);
    let folder = folder.unwrap_or_default().to_string_lossy();
    let editor = params["clientInfo"]["name"].as_str().unwrap_or_default();
    let (own_id, own_name) = id::session_of_editor(editor, &folder, bytes);
    let named = options.session.clone();
    let mut ask = OpenSession {
        name: named.is_none().then_some(own_name),
        // One that somebody else may have made keeps the lease that it has.
        lease_ms: (named.is_none() && !options.keep).then(limits::editor_lease),
        keep: options.keep,
        root: root.as_deref().and_then(Path::to_str).map(str::to_owned),
        token: options.token.clone(),
        id: Some(named.clone().unwrap_or(own_id)),
        ..OpenSession::default()
    };
    let registry = &caller.house().registry;
    let open = |ask: OpenSession| -> Result<OpenedSession, Refusal> {
        let opened = caller.change_access(|access| registry.open(ask.clone(), access))?;
        caller.editor().has_opened(ask);
        Ok(opened)
    };
    match open(ask.clone()) {
        // Another window has it, and this one cannot prove that it is the same person's.
        Err(refusal)
            if refusal.kind == RefusalKind::NotFound && named.is_none() && ask.token.is_none() =>
        {
            ask.id = ask.id.map(|id| format!("{id}-{}", secret::word()));
            open(ask)
        }
        answer => answer,
    }
}

/// The folder that the editor has open; of several the first.
fn root(params: &Value) -> Option<PathBuf> {
    let first = params["workspaceFolders"][0]["uri"].as_str();
    let uri = first.or_else(|| params["rootUri"].as_str());
    if let Some(uri) = uri {
        let uri = Uri::from_str(uri).ok()?;
        let is_file = uri.scheme().as_str().eq_ignore_ascii_case("file");
        return uri
            .to_file_path()
            .filter(|_| is_file)
            .map(|p| p.into_owned());
    }
    let path = params["rootPath"].as_str().map(PathBuf::from);
    path.filter(|path| path.is_absolute())
}

/// The folder without links, so that a project has one session whichever way it was opened; as it was given where its
/// disk does not say.
async fn real(root: PathBuf) -> PathBuf {
    let asked = root.clone();
    let looking = tokio::task::spawn_blocking(move || std::fs::canonicalize(asked));
    match tokio::time::timeout(DISK, looking).await {
        Ok(Ok(Ok(real))) => real,
        _ => root,
    }
}
