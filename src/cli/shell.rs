//! `tokengauge completions` and `tokengauge man`: generate shell completions and manual pages from the command line's
//! definition.

use std::path::PathBuf;

use anyhow::Context;
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  Bash, for one user:
    tokengauge completions bash > ~/.local/share/bash-completion/completions/tokengauge

  Zsh, in a folder of $fpath:
    tokengauge completions zsh > ~/.zfunc/_tokengauge

  Fish:
    tokengauge completions fish > ~/.config/fish/completions/tokengauge.fish")]
pub struct CompletionsArgs {
    /// Print the completions of this shell
    shell: Shell,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  tokengauge man ~/.local/share/man/man1 && man tokengauge-run")]
pub struct ManArgs {
    /// Write the pages to this folder, which is created if absent: tokengauge.1 and one page per command
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(super) fn completions(args: &CompletionsArgs, mut command: clap::Command) -> String {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes one manual page for the program and one for each command.
pub(super) fn man(args: &ManArgs, command: clap::Command) -> anyhow::Result<String> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .with_context(|| format!("cannot write the manual pages to {}", folder.display()))?;
    Ok(format!("wrote the manual pages to {}", folder.display()))
}
