//! Builds the files of a release: archives, packages, SBOMs, the chart, the Homebrew formula and checksums.

use std::env::consts;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// The owner of the repository in a checkout that is not published.
const PLACEHOLDER: &str = "example";

/// The features of the program for workstations and servers: all, unlike in the image.
const FEATURES: &str = "console,demo,hf-tokenizers,tools,top";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Architectures of the binaries. The host's is needed, because its binary writes the manual pages
    #[arg(long, value_enum, default_values = ["x86-64", "aarch64"])]
    arch: Vec<Arch>,
    /// Package a static binary instead of building it, for checks
    #[arg(long, value_name = "ARCH=FILE", value_parser = parse_binary)]
    binary: Vec<(Arch, PathBuf)>,
    /// Add an archive that another machine built, such as tokengauge-VERSION-darwin-aarch64.tar.gz
    #[arg(long, value_name = "FILE")]
    add: Vec<PathBuf>,
    /// Tag of the release, which must be the version in Cargo.toml
    #[arg(long)]
    tag: Option<String>,
    /// Repository that publishes the release, which must be `repository` in Cargo.toml
    #[arg(long, value_name = "OWNER/NAME")]
    published_in: Option<String>,
    /// Write the files to DIR/files
    #[arg(long, value_name = "DIR", default_value = "target/distrib")]
    out: PathBuf,
    /// Folder of nfpm and helm, which are built there if they are absent
    #[arg(long, value_name = "DIR", default_value = "target/tools")]
    tools: PathBuf,
    /// Build although the owner of the repository is a placeholder, for checks
    #[arg(long)]
    allow_placeholder: bool,
    /// Timestamp of the files in seconds since 1970; the default is that of the commit
    #[arg(long, env = "SOURCE_DATE_EPOCH", value_name = "SECONDS")]
    time: Option<u64>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Arch {
    #[value(name = "x86-64", alias = "x86_64")]
    X86_64,
    Aarch64,
}

impl Arch {
    /// The name that `uname -m` prints on Linux. The names of archives contain it.
    const fn machine(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The name in packages and images.
    const fn package(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }
}

fn parse_binary(text: &str) -> Result<(Arch, PathBuf), String> {
    let (arch, file) = text.split_once('=').ok_or("must be ARCH=FILE")?;
    Ok((Arch::from_str(arch, true)?, PathBuf::from(file)))
}

/// A release that is being built.
struct Release<'a> {
    args: &'a Args,
    files: PathBuf,
    tools: PathBuf,
    time: u64,
}

/// # Errors
/// Returns the first command that fails, or the setting that prevents a release.
pub(super) fn run(args: &Args) -> Result<()> {
    if !args.allow_placeholder {
        check_owner(REPOSITORY)?;
    }
    if let Some(repository) = &args.published_in {
        ensure!(
            REPOSITORY == format!("https://github.com/{repository}"),
            "{repository} is not `repository` of Cargo.toml, {REPOSITORY}, to which every link of the release leads"
        );
    }
    if let Some(tag) = &args.tag {
        ensure!(
            tag.strip_prefix('v') == Some(VERSION),
            "the tag \"{tag}\" is not \"v{VERSION}\"; the version is in Cargo.toml, [workspace.package]"
        );
    }
    ensure!(
        args.arch.iter().any(|arch| arch.machine() == consts::ARCH),
        "--arch lacks the host's architecture {}, whose binary writes the manual pages",
        consts::ARCH
    );
    std::env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?;
    check_chart_version(&fs::read_to_string("deploy/helm/tokengauge/Chart.yaml")?)?;
    let release = Release::new(args)?;
    release.build()
}

/// Checks that the repository has a real owner, because every link and image name of the release contains the owner.
fn check_owner(repository: &str) -> Result<()> {
    let path = repository.strip_prefix("https://github.com/");
    let (owner, _) = path.and_then(|path| path.split_once('/')).with_context(|| {
        format!("`repository` of Cargo.toml is \"{repository}\", not https://github.com/OWNER/NAME")
    })?;
    ensure!(
        owner != PLACEHOLDER,
        "the owner \"{PLACEHOLDER}\" in `repository` of Cargo.toml ({repository}) is a placeholder; set it to the \
         owner of the published repository, then run: NAMES=write cargo test --test structure names"
    );
    Ok(())
}

fn check_chart_version(chart: &str) -> Result<()> {
    for line in [format!("version: {VERSION}"), format!("appVersion: \"{VERSION}\"")] {
        ensure!(
            chart.lines().any(|it| it == line),
            "deploy/helm/tokengauge/Chart.yaml has no line `{line}`, the version in Cargo.toml"
        );
    }
    Ok(())
}

impl<'a> Release<'a> {
    fn new(args: &'a Args) -> Result<Self> {
        let time = match args.time {
            Some(time) => time,
            None => {
                output(Command::new("git").args(["log", "-1", "--format=%ct"]))?.trim().parse()?
            }
        };
        for folder in ["files", "stage"].map(|name| args.out.join(name)) {
            if folder.exists() {
                fs::remove_dir_all(&folder)?;
            }
            fs::create_dir_all(&folder)?;
        }
        fs::create_dir_all(&args.tools)?;
        let files = args.out.join("files").canonicalize()?;
        Ok(Self { args, files, tools: args.tools.canonicalize()?, time })
    }

    fn build(&self) -> Result<()> {
        run_command(Command::new("tests/tools/build").arg(&self.tools).args(["nfpm", "helm"]))?;
        for arch in &self.args.arch {
            self.build_binary(*arch)?;
        }
        for arch in &self.args.arch {
            self.stage_documents(*arch)?;
            self.write_archive(*arch)?;
            self.write_packages(*arch)?;
            let sbom = format!("tokengauge-{VERSION}-linux-{}.cdx.json", arch.machine());
            copy(&self.stage(*arch).join("tokengauge.cdx.json"), &self.files.join(sbom))?;
        }
        for file in &self.args.add {
            let name = file.file_name().context("--add needs a file")?;
            copy(file, &self.files.join(name))?;
        }
        let chart = ["package", "deploy/helm/tokengauge", "--destination"];
        run_command(Command::new(self.tools.join("helm")).args(chart).arg(&self.files))?;
        copy(Path::new("deploy/packages/install.sh"), &self.files.join("install.sh"))?;
        self.write_checksums()?;
        self.write_formula()?;
        report(&format!("wrote the files of {VERSION} to {}", self.files.display()));
        Ok(())
    }

    /// The folder with the content of the archive and of the packages.
    fn stage(&self, arch: Arch) -> PathBuf {
        self.args.out.join("stage").join(archive_name(arch))
    }

    fn build_binary(&self, arch: Arch) -> Result<()> {
        let mut command = Command::new("deploy/docker/rootfs");
        command
            .arg(self.stage(arch))
            .env("TARGET", format!("{}-unknown-linux-gnu", arch.machine()))
            .env("FEATURES", FEATURES)
            .env("SOURCE_DATE_EPOCH", self.time.to_string());
        if let Some((_, file)) = self.args.binary.iter().find(|(of, _)| *of == arch) {
            command.env("BINARY", file);
        }
        run_command(&mut command)
    }

    /// Writes manual pages, completions and the files of the service. The host's binary is run for every architecture.
    fn stage_documents(&self, arch: Arch) -> Result<()> {
        let host = self.args.arch.iter().find(|arch| arch.machine() == consts::ARCH);
        let program = self.stage(*host.context("run() checks --arch")?).join("tokengauge");
        let stage = self.stage(arch);
        run_command(Command::new(&program).arg("man").arg(stage.join("man")))?;
        let completions = stage.join("completions");
        fs::create_dir_all(&completions)?;
        for (shell, file) in
            [("bash", "tokengauge.bash"), ("zsh", "_tokengauge"), ("fish", "tokengauge.fish")]
        {
            let script = output(Command::new(&program).args(["completions", shell]))?;
            fs::write(completions.join(file), script)?;
        }
        for file in ["tokengauge.service", "tokengauge.yaml"] {
            copy(&Path::new("deploy/packages").join(file), &stage.join(file))?;
        }
        Ok(())
    }

    /// Writes an archive whose bytes depend only on its content.
    fn write_archive(&self, arch: Arch) -> Result<()> {
        let name = archive_name(arch);
        let mut tar = Command::new("tar");
        tar.args([
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--mode=go=rX,u=rwX",
        ])
        .args(["--use-compress-program=gzip -9n", &format!("--mtime=@{}", self.time)])
        .arg("-cf")
        .arg(self.files.join(format!("{name}.tar.gz")))
        .arg("-C")
        .arg(self.args.out.join("stage"))
        .arg(name);
        run_command(&mut tar)
    }

    fn write_packages(&self, arch: Arch) -> Result<()> {
        for packager in ["deb", "rpm"] {
            let mut nfpm = Command::new(self.tools.join("nfpm"));
            nfpm.args(["package", "--config", "deploy/packages/nfpm.yaml"])
                .args(["--packager", packager, "--target"])
                .arg(&self.files)
                .envs([("ARCH", arch.package()), ("VERSION", VERSION), ("REPOSITORY", REPOSITORY)])
                .env("STAGE", self.stage(arch))
                .env("SOURCE_DATE_EPOCH", self.time.to_string());
            run_command(&mut nfpm)?;
        }
        Ok(())
    }

    fn write_checksums(&self) -> Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.files)? {
            names.push(entry?.file_name());
        }
        names.sort();
        let sums = output(Command::new("sha256sum").args(names).current_dir(&self.files))?;
        fs::write(self.files.join("SHA256SUMS"), sums)?;
        Ok(())
    }

    /// Fills in the Homebrew formula. It is written only if every archive that it names is there.
    fn write_formula(&self) -> Result<()> {
        let template = fs::read_to_string("deploy/packages/tokengauge.rb")?;
        let sums = fs::read_to_string(self.files.join("SHA256SUMS"))?;
        match formula(&template, &sums) {
            Ok(formula) => fs::write(self.files.join("tokengauge.rb"), formula)?,
            Err(missing) => report(&format!("the Homebrew formula is not written: {missing}")),
        }
        Ok(())
    }
}

fn archive_name(arch: Arch) -> String {
    format!("tokengauge-{VERSION}-linux-{}", arch.machine())
}

/// Replaces version and checksums in the template of the Homebrew formula.
fn formula(template: &str, sums: &str) -> Result<String> {
    let mut formula = template.replace("@VERSION@", VERSION);
    for platform in ["darwin-aarch64", "linux-aarch64", "linux-x86_64"] {
        let name = format!("  tokengauge-{VERSION}-{platform}.tar.gz");
        let sum = sums.lines().find_map(|line| line.strip_suffix(&name));
        let sum = sum.with_context(|| format!("SHA256SUMS has no archive of {platform}"))?;
        let place = format!("@{}@", platform.to_uppercase().replace('-', "_"));
        ensure!(formula.contains(&place), "the formula has no {place}");
        formula = formula.replace(&place, sum);
    }
    Ok(formula)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("copying {} failed", from.display()))?;
    Ok(())
}

fn run_command(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[expect(clippy::print_stdout, reason = "the program is a command of developers")]
fn report(text: &str) {
    println!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_repository_with_an_owner_is_released() {
        // Another project, because a change of the owner rewrites the name of this one in all files.
        check_owner("https://github.com/me/project").unwrap();
        let unpublished = format!("https://github.com/{PLACEHOLDER}/project");
        for (wrong, message) in [
            (&*unpublished, "set it to the owner"),
            ("https://gitlab.com/me/project", "not https://github.com/OWNER/NAME"),
            ("https://github.com/me", "not https://github.com/OWNER/NAME"),
        ] {
            let error = check_owner(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains(message), "{error}");
        }
    }

    #[test]
    fn chart_and_program_have_the_same_version() {
        let chart = include_str!("../../deploy/helm/tokengauge/Chart.yaml");
        check_chart_version(chart).unwrap();
        let older = chart.replace(VERSION, "0.0.1");
        assert!(check_chart_version(&older).unwrap_err().to_string().contains("version: "));
    }

    #[test]
    fn the_formula_has_the_checksum_of_every_archive() {
        let template = include_str!("../../deploy/packages/tokengauge.rb");
        let platforms = ["darwin-aarch64", "linux-aarch64", "linux-x86_64"];
        let sums: String = platforms
            .iter()
            .map(|platform| format!("sum-of-{platform}  tokengauge-{VERSION}-{platform}.tar.gz\n"))
            .collect();
        let filled = formula(template, &sums).unwrap();
        let code = filled.split_once("class ").unwrap().1;
        assert!(!code.contains('@'), "{filled}");
        for platform in platforms {
            assert!(filled.contains(&format!("sha256 \"sum-of-{platform}\"")), "{filled}");
        }
        let error = formula(template, sums.split_once('\n').unwrap().1).unwrap_err();
        assert_eq!(error.to_string(), "SHA256SUMS has no archive of darwin-aarch64");
    }
}
