//! `eyas serve`: the target, or a script, behind SGLang's `/generate`.

use crate::cli::ServeArgs;
use crate::embedded::Embedded;
use crate::error::{CommandError, Ending, ErrorKind};
use crate::recipe::EmbeddedRecipe;
use crate::talk::{Talk, print};
use eyas_serve::{Script, ScriptBackend, Server, ServerConfig, ServerHandle};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// Runs the command until Ctrl-C, or until a script lets the server die.
pub(crate) fn command(args: &ServeArgs, talk: Talk) -> Result<Ending, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::input(anyhow::Error::new(error).context("cannot start worker threads")))?;
    runtime.block_on(async {
        match (&args.script, &args.model) {
            (Some(script), _) => {
                let handle = serve_script(script, args.port).await?;
                announce(&handle.url(), talk)?;
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    () = handle.died() => {
                        talk.warn("the script let the server die");
                        return Ok(Ending::ServerDown);
                    }
                }
                handle.shutdown().await;
            }
            (None, Some(model)) => {
                let recipe = EmbeddedRecipe {
                    max_running: args.max_running,
                    context_len: args.context_len,
                    weights: args.weights,
                };
                let embedded = Embedded::start(model, &recipe, args.port).await?;
                announce(&embedded.url(), talk)?;
                tokio::signal::ctrl_c().await.ok();
                embedded.shutdown().await;
            }
            (None, None) => return Err(CommandError::usage(anyhow::anyhow!("neither --model nor --script is given"))),
        }
        Ok(Ending::Done)
    })
}

/// The URL is data: a script that starts the server reads it from standard output.
fn announce(url: &str, talk: Talk) -> Result<(), CommandError> {
    print(&format!("{url}\n")).map_err(CommandError::input)?;
    talk.say("serving; Ctrl-C stops");
    Ok(())
}

async fn serve_script(path: &Path, port: u16) -> Result<ServerHandle, CommandError> {
    let unusable = |error: anyhow::Error| CommandError::usage(error.context(format!("script `{}`", path.display())));
    let text = std::fs::read_to_string(path).map_err(|error| unusable(error.into()))?;
    let script = Script::parse(&text).map_err(|error| unusable(error.into()))?;
    let backend = ScriptBackend::new(script).map_err(|error| unusable(error.into()))?;
    let config = ServerConfig { addr: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), ..ServerConfig::default() };
    Server::start(backend, config)
        .await
        .map_err(|error| CommandError::new(ErrorKind::Server, anyhow::Error::new(error)))
}
