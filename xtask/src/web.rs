//! `cargo xtask web`: the engine as WebAssembly, its bindings and the page, into `web/page/dist`; and a small
//! server for it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use tiny_http::{Header, Request, Response, Server};
use wasm_bindgen_cli_support::Bindgen;

use crate::cargo::cargo;
use crate::shell::Shell;
use crate::{packages, root, system};

const TARGET: &str = "wasm32-unknown-unknown";
/// Profile of the workspace's Cargo.toml.
const PROFILE: &str = "web";
const PACKAGE: &str = "tightrope-web";
/// Name of the module and of its bindings.
const NAME: &str = "tightrope_web";
/// Package and name of the module that has the conformance cases.
const CONFORMANCE: (&str, &str) = ("conformance-browser", "conformance_browser");
/// Every browser with WebGPU has these.
const FEATURES: [&str; 7] = [
    "--enable-simd",
    "--enable-bulk-memory",
    "--enable-multivalue",
    "--enable-mutable-globals",
    "--enable-nontrapping-float-to-int",
    "--enable-reference-types",
    "--enable-sign-ext",
];
/// Most bytes of the engine's module: 3.42 MiB.
const LARGEST: usize = 342 * (1 << 20) / 100;
/// Most bytes that a visitor loads of it: compressed, 1.43 MiB.
const LARGEST_COMPRESSED: usize = 143 * (1 << 20) / 100;
/// Where the page is served unless a port is given.
const PORT: u16 = 8080;

/// Builds the page and, with `--serve [PORT]`, serves it.
///
/// # Errors
/// A tool that is missing and can't be installed, or fails.
pub fn run(options: &[String]) -> anyhow::Result<bool> {
    let port = match options {
        [] => None,
        [serve] if serve == "--serve" => Some(PORT),
        [serve, port] if serve == "--serve" => {
            Some(port.parse().with_context(|| format!("`{port}` is no port"))?)
        }
        _ => bail!("usage: cargo xtask web [--serve [PORT]]"),
    };
    let page = build(&mut Shell::live())?;
    match port {
        Some(port) => serve(&page.join("dist"), port),
        None => Ok(true),
    }
}

/// Builds the engine and the page, and gives the page's folder.
///
/// # Errors
/// As [`run`].
pub fn build(shell: &mut Shell) -> anyhow::Result<PathBuf> {
    let modules = compile(shell, &[PACKAGE])?;
    bundle(shell, &modules)
}

/// Builds what the tests in a browser load: the page, and the modules of the engine and of the conformance cases.
///
/// # Errors
/// As [`run`].
pub fn build_for_tests(shell: &mut Shell) -> anyhow::Result<()> {
    let (package, name) = CONFORMANCE;
    let compiled = compile(shell, &[PACKAGE, package])?;
    let page = bundle(shell, &compiled)?;
    bind(&compiled, name, &modules().join("conformance"))?;
    let engine = modules().join("engine");
    fs::create_dir_all(&engine)?;
    for file in [format!("{NAME}.js"), format!("{NAME}_bg.wasm")] {
        fs::copy(page.join("src").join("wasm").join(&file), engine.join(&file))?;
    }
    Ok(())
}

/// The page with the engine that was compiled into the folder `modules`; the page's folder.
fn bundle(shell: &mut Shell, modules: &Path) -> anyhow::Result<PathBuf> {
    let page = page();
    npm(shell, &page, &["ci", "--no-audit", "--no-fund"])?;
    let bindings = page.join("src").join("wasm");
    bind(modules, NAME, &bindings)?;
    let module = bindings.join(format!("{NAME}_bg.wasm"));
    shrink(shell, &page, &module)?;
    measure(shell, &module)?;
    npm(shell, &page, &["run", "build"])?;
    Ok(page)
}

/// Tests the engine's module in Chromium.
///
/// # Errors
/// Where they can't run, or one fails.
pub fn test_engine(shell: &mut Shell) -> anyhow::Result<()> {
    let tests = root().join("tests");
    let mut node = Command::new("node");
    node.arg(tests.join("browser").join("run.mjs"));
    node.arg("--modules").arg(modules()).arg("--binary").arg(packages::binary(shell)?);
    let unsupported = tests.join("unsupported").join("wgpu.txt");
    if unsupported.exists() {
        node.arg("--unsupported").arg(unsupported);
    }
    shell.run(&mut node)
}

/// Tests the page from end to end in Chromium.
///
/// # Errors
/// As [`test_engine`].
pub fn test_page(shell: &mut Shell) -> anyhow::Result<()> {
    let binary = packages::binary(shell)?;
    let mut node = Command::new("node");
    shell.run(node.arg("tests/e2e.mjs").current_dir(page()).env("TIGHTROPE_BINARY", binary))
}

/// What the page promises of time, for a machine that does nothing else.
///
/// # Errors
/// Where Node.js or the browser is missing, or the page takes longer.
pub fn time_page(shell: &mut Shell) -> anyhow::Result<()> {
    shell.run(Command::new("node").arg("tests/times.mjs").current_dir(page()))
}

/// The folder of the page's sources.
fn page() -> PathBuf {
    root().join("web").join("page")
}

/// Where the modules are that tests load.
fn modules() -> PathBuf {
    root().join("target").join("web").join("modules")
}

/// The module with the conformance cases and its bindings, for measurements; its folder.
///
/// # Errors
/// As [`run`].
pub fn conformance(shell: &mut Shell) -> anyhow::Result<PathBuf> {
    let (package, name) = CONFORMANCE;
    let folder = modules().join("conformance");
    bind(&compile(shell, &[package])?, name, &folder)?;
    Ok(folder)
}

/// Builds the modules of these packages and gives their folder.
fn compile(shell: &mut Shell, packages: &[&str]) -> anyhow::Result<PathBuf> {
    let target_dir = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), PathBuf::from)
        .join(PROFILE);
    let mut command = cargo();
    command.args(["build", "--locked", "--lib", "--profile", PROFILE]);
    for package in packages {
        command.args(["--package", package]);
    }
    command
        .args(["--target", TARGET, "--target-dir"])
        .arg(&target_dir)
        .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", "-Ctarget-feature=+simd128")
        .current_dir(root());
    if !has_target(shell)? {
        with_debian_rust(shell, &mut command)?;
    }
    shell.run(&mut command)?;
    Ok(target_dir.join(TARGET).join(PROFILE))
}

/// Whether the toolchain has the target, after an attempt to add it.
fn has_target(shell: &mut Shell) -> anyhow::Result<bool> {
    let installed = || -> anyhow::Result<bool> {
        let words = ["--print", "target-libdir", "--target", TARGET];
        let output = Command::new("rustc").args(words).output().context("can't start rustc")?;
        let folder = String::from_utf8_lossy(&output.stdout);
        Ok(output.status.success() && Path::new(folder.trim()).is_dir())
    };
    if installed()? {
        return Ok(true);
    }
    shell.say(format_args!("installing the target {TARGET}"));
    let added = shell.run(Command::new("rustup").args(["target", "add", TARGET]));
    Ok(added.is_ok() && installed()?)
}

/// Where rustup can't fetch the target, Debian's compiler builds the standard library from its source.
fn with_debian_rust(shell: &mut Shell, command: &mut Command) -> anyhow::Result<()> {
    const RUSTC: &str = "/usr/bin/rustc";
    let source = Path::new("/usr/lib/rustlib/src/rust/library");
    if !(Path::new(RUSTC).exists() && source.exists()) {
        system::install(shell, &["rustc-web", "rust-web-src", "lld"])?;
    }
    let linker = Command::new("rustc").args(["--print", "target-libdir"]).output()?;
    let libraries = PathBuf::from(String::from_utf8_lossy(&linker.stdout).trim());
    let linker = libraries.with_file_name("bin").join("rust-lld");
    command
        .args(["-Zbuild-std=std,panic_abort"])
        .env("RUSTC", RUSTC)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
    Ok(())
}

/// Makes the bindings of the module `name` in the folder `modules`. The crate that does it is of the version that the module was
/// made with.
fn bind(modules: &Path, name: &str, folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Bindgen::new()
        .input_path(modules.join(name).with_extension("wasm"))
        .out_name(name)
        .web(true)?
        .typescript(false)
        .generate(folder)
        .context("can't make the bindings")
}

/// Runs the page's own wasm-opt over the module: those of distributions may be too old for its tables.
fn shrink(shell: &mut Shell, page: &Path, module: &Path) -> anyhow::Result<()> {
    let optimizer = page.join("node_modules").join(".bin").join("wasm-opt");
    let mut command = Command::new(optimizer);
    // Level 1 until the size stays the same: compressed, it's the smallest level. The passes behind it are in no level's end.
    command.args(FEATURES).args(["-O1", "--converge"]);
    command.args(["--dae-optimizing", "--rse", "--vacuum", "--optimize-instructions"]);
    shell.run(command.arg(module).arg("-o").arg(module))
}

/// Prints the module's size.
///
/// # Errors
/// More than [`LARGEST`], or than [`LARGEST_COMPRESSED`] with gzip.
fn measure(shell: &mut Shell, module: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(module)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&bytes)?;
    let compressed = encoder.finish()?.len();
    let mebibytes = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    shell.say(format_args!(
        "{}: {:.2} MiB, {:.2} MiB with gzip",
        module.display(),
        mebibytes(bytes.len()),
        mebibytes(compressed)
    ));
    for (bytes, what, most) in
        [(bytes.len(), "", LARGEST), (compressed, " compressed", LARGEST_COMPRESSED)]
    {
        ensure!(bytes <= most, "{bytes} bytes{what} are more than {most}");
    }
    Ok(())
}

/// Runs npm with these arguments in `folder`.
///
/// # Errors
/// Where it's missing, or fails.
pub fn npm(shell: &mut Shell, folder: &Path, words: &[&str]) -> anyhow::Result<()> {
    shell
        .run(Command::new("npm").args(words).current_dir(folder))
        .context("this needs Node.js with npm (Debian's packages nodejs and npm)")
}

/// Serves the files of `folder` on this machine alone, isolated from other origins, until it's stopped.
fn serve(folder: &Path, port: u16) -> anyhow::Result<bool> {
    let server = Server::http(("127.0.0.1", port))
        .map_err(|error| anyhow::anyhow!("can't serve on port {port}: {error}"))?;
    println!("http://localhost:{port}/");
    for request in server.incoming_requests() {
        // Who has gone away needs no answer.
        let _ = answer(folder, request);
    }
    Ok(true)
}

fn answer(folder: &Path, request: Request) -> std::io::Result<()> {
    let found =
        file(folder, request.url()).and_then(|path| Some((kind(&path), fs::read(path).ok()?)));
    let (status, kind, body) = match found {
        Some((kind, body)) => (200, kind, body),
        None => (404, "text/plain", b"not found\n".to_vec()),
    };
    let mut response = Response::from_data(body).with_status_code(status);
    for (name, value) in [
        ("Content-Type", kind),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Embedder-Policy", "require-corp"),
        ("Cache-Control", "no-cache"),
        ("X-Content-Type-Options", "nosniff"),
    ] {
        let header = Header::from_bytes(name, value).expect("these are plain ASCII");
        response.add_header(header);
    }
    request.respond(response)
}

/// The file of `folder` that a URL names; none outside of it.
fn file(folder: &Path, url: &str) -> Option<PathBuf> {
    let path = url.split(['?', '#']).next()?.trim_start_matches('/');
    let safe = path.split('/').all(|part| part != ".." && !part.contains(['\\', ':', '%', '\0']));
    let path = if path.is_empty() { "index.html" } else { path };
    let path = folder.join(path);
    (safe && path.is_file()).then_some(path)
}

fn kind(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "webmanifest") => "application/json",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("woff2") => "font/woff2",
        Some("woff") => "font/woff",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    fn get(port: u16, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn files_come_with_the_headers_of_isolation_and_nothing_outside_does() {
        let folder = std::env::temp_dir().join(format!("tightrope-serve-{}", std::process::id()));
        fs::create_dir_all(folder.join("assets")).unwrap();
        fs::write(folder.join("index.html"), "<title>page</title>").unwrap();
        fs::write(folder.join("assets/a.wasm"), "wasm").unwrap();
        let server = Server::http("127.0.0.1:0").unwrap();
        let port = server.server_addr().to_ip().unwrap().port();
        let served = folder.clone();
        let thread = std::thread::spawn(move || {
            for request in server.incoming_requests().take(4) {
                answer(&served, request).unwrap();
            }
        });
        let index = get(port, "/?a=b");
        assert!(index.starts_with("HTTP/1.1 200") && index.contains("<title>page"), "{index}");
        assert!(index.contains("Cross-Origin-Opener-Policy: same-origin"), "{index}");
        assert!(index.contains("Cross-Origin-Embedder-Policy: require-corp"), "{index}");
        assert!(get(port, "/assets/a.wasm").contains("application/wasm"));
        assert!(get(port, "/../../etc/passwd").starts_with("HTTP/1.1 404"));
        assert!(get(port, "/assets/%2e%2e/index.html").starts_with("HTTP/1.1 404"));
        thread.join().unwrap();
        fs::remove_dir_all(folder).unwrap();
    }
}
