# Homebrew formula. `cargo xtask dist` fills in the version and the checksums, which are written as @NAME@ here.
class Tokengauge < Formula
  desc "Observability proxy for LLM APIs"
  homepage "https://github.com/example/tokengauge"
  version "@VERSION@"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "https://github.com/example/tokengauge/releases/download/v@VERSION@/tokengauge-@VERSION@-darwin-aarch64.tar.gz"
      sha256 "@DARWIN_AARCH64@"
    end
  end

  on_linux do
    on_arm do
      url "https://github.com/example/tokengauge/releases/download/v@VERSION@/tokengauge-@VERSION@-linux-aarch64.tar.gz"
      sha256 "@LINUX_AARCH64@"
    end
    on_intel do
      url "https://github.com/example/tokengauge/releases/download/v@VERSION@/tokengauge-@VERSION@-linux-x86_64.tar.gz"
      sha256 "@LINUX_X86_64@"
    end
  end

  def install
    bin.install "tokengauge"
    generate_completions_from_executable(bin/"tokengauge", "completions")
    system bin/"tokengauge", "man", man1
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/tokengauge --version")
  end
end
