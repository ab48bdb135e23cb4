// Files of a volume and of /tmp, over `wasi:filesystem`. Every call waits for the host.
//
// A file is open only within a call, so a job holds no files.

import { getDirectories } from "gwsi:filesystem/preopens@0.2.0";
import { filesystemErrorCode } from "gwsi:filesystem/types@0.2.0";

/** Bytes of one read and of one write. */
const PIECE_BYTES = 65536;

/** The codes of Node for errors of the host, and their messages. */
const CODES = {
  access: ["EACCES", "permission denied"],
  exist: ["EEXIST", "file exists"],
  "file-too-large": ["EFBIG", "file too large"],
  "insufficient-space": ["ENOSPC", "no space left on the volume"],
  invalid: ["EINVAL", "invalid argument"],
  "is-directory": ["EISDIR", "is a directory"],
  "name-too-long": ["ENAMETOOLONG", "name too long"],
  "no-entry": ["ENOENT", "no such file or directory"],
  "not-directory": ["ENOTDIR", "not a directory"],
  "not-empty": ["ENOTEMPTY", "directory not empty"],
  "not-permitted": ["EPERM", "operation not permitted"],
  quota: ["EDQUOT", "quota exceeded"],
  "read-only": ["EROFS", "read-only file system"],
  "cross-device": ["EXDEV", "not on the same volume"],
  unsupported: ["ENOTSUP", "not supported"],
};

const TO_CREATE = {
  a: { create: true },
  ax: { create: true, exclusive: true },
  w: { create: true, truncate: true },
  wx: { create: true, exclusive: true },
};

/** Runs an operation of Node's name on a path; an error of the host becomes one like Node's. */
function named(operation, path, work) {
  try {
    return work();
  } catch (error) {
    const kind = error?.payload;
    if (typeof kind !== "string") throw error;
    const [code, what] = CODES[kind] ?? [`E${kind.toUpperCase()}`, kind];
    const named = new Error(`${code}: ${what}, ${operation} ${JSON.stringify(path)}`);
    throw Object.assign(named, { code, syscall: operation, path });
  }
}

/** The mounted directory of a path, and the rest of the path below it. */
function place(operation, path) {
  const text = textOf(path);
  const parts = [];
  for (const part of text.split("/")) {
    if (part === "..") parts.pop();
    else if (part && part !== ".") parts.push(part);
  }
  const whole = `/${parts.join("/")}`;
  let found;
  for (const [directory, mount] of getDirectories()) {
    const isBelow = whole === mount || whole.startsWith(`${mount.replace(/\/$/, "")}/`);
    if (text.startsWith("/") && isBelow && !(found?.mount.length > mount.length)) {
      found?.directory[Symbol.dispose]();
      found = { directory, mount };
    } else directory[Symbol.dispose]();
  }
  if (found)
    return { directory: found.directory, rest: whole.slice(found.mount.length + 1) || "." };
  let why = "no volume is mounted there";
  if (!text.startsWith("/")) why = "the path must be absolute";
  else if (`${whole}/`.startsWith("/tmp/"))
    why = "there is no /tmp without scratch space: scratch-gb in [limits] of gristmill.toml, or --scratch-gb";
  const error = new Error(`ENOENT: ${why}, ${operation} ${JSON.stringify(text)}`);
  throw Object.assign(error, { code: "ENOENT", syscall: operation, path: text });
}

function textOf(path) {
  if (typeof path === "string") {
    if (path.includes("\0")) throw new TypeError("a path has no NUL");
    return path.toWellFormed();
  }
  if (path?.protocol === "file:") return decodeURIComponent(path.pathname);
  throw new TypeError(`a path is a string, not ${typeof path}`);
}

/** Runs `work` with the mounted directory of a path and the rest of the path. */
function at(operation, path, work) {
  const { directory, rest } = place(operation, path);
  try {
    return named(operation, textOf(path), () => work(directory, rest));
  } finally {
    directory[Symbol.dispose]();
  }
}

function withFile(operation, path, how, flags, work) {
  return at(operation, path, (directory, rest) => {
    const file = directory.openAt({ symlinkFollow: true }, rest, how, flags);
    try {
      return work(file);
    } finally {
      file[Symbol.dispose]();
    }
  });
}

const encodingOf = (options) => (typeof options === "string" ? options : options?.encoding);

function checkEncoding(encoding) {
  if (encoding && !/^utf-?8$/i.test(encoding)) {
    throw new TypeError(`encoding: only utf8 is available in the sandbox, not ${encoding}`);
  }
}

export function readFile(path, options) {
  const encoding = encodingOf(options);
  checkEncoding(encoding);
  const bytes = withFile("open", path, {}, { read: true }, readAll);
  return encoding ? new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes) : bytes;
}

function readAll(file) {
  const stat = file.stat();
  if (stat.type === "directory") throw Object.assign(new Error(), { payload: "is-directory" });
  let bytes = new Uint8Array(Number(stat.size));
  let length = 0;
  while (true) {
    const [piece, isEnd] = file.read(sized(PIECE_BYTES), sized(length));
    if (length + piece.length > bytes.length) {
      // The file has grown since.
      const longer = new Uint8Array(Math.max(2 * bytes.length, length + piece.length));
      longer.set(bytes);
      bytes = longer;
    }
    bytes.set(piece, length);
    length += piece.length;
    if (isEnd || !piece.length) return bytes.subarray(0, length);
  }
}

export function writeFile(path, data, options) {
  write(path, data, typeof options === "object" ? (options?.flag ?? "w") : "w", options);
}

export function appendFile(path, data, options) {
  write(path, data, "a", options);
}

function write(path, data, flag, options) {
  checkEncoding(encodingOf(options));
  const how = TO_CREATE[flag];
  if (!how) throw new TypeError(`flag: expected ${Object.keys(TO_CREATE).join(", ")}, got ${flag}`);
  const bytes = bytesOf(data);
  withFile("open", path, how, { read: true, write: true }, (file) => {
    if (flag.startsWith("a")) append(file, bytes);
    else overwrite(file, bytes);
    if (options?.flush) file.syncData();
  });
}

function overwrite(file, bytes) {
  for (let done = 0; done < bytes.length;) {
    const piece = bytes.subarray(done, done + PIECE_BYTES);
    done += Number(file.write(piece, sized(done)));
  }
}

/**
 * Adds the bytes at the end. The host finds the end of the file and writes a piece in one step, so
 * that concurrent jobs overwrite nothing of each other.
 */
function append(file, bytes) {
  const stream = file.appendViaStream();
  try {
    for (let done = 0; done < bytes.length;) {
      // The host takes 64 KiB at once, which README.md promises.
      const piece = bytes.subarray(done, done + Number(stream.checkWrite()));
      stream.write(piece);
      stream.blockingFlush();
      done += piece.length;
    }
  } catch (error) {
    throw error?.payload?.tag === "last-operation-failed" ? ofFile(error.payload.val) : error;
  } finally {
    stream[Symbol.dispose]();
  }
}

/** The error of a stream as an operation on a file has it. */
function ofFile(failure) {
  const payload = filesystemErrorCode(failure) ?? "io";
  failure[Symbol.dispose]();
  return Object.assign(new Error(), { payload });
}

function bytesOf(data) {
  if (typeof data === "string") return new TextEncoder().encode(data);
  if (data instanceof Uint8Array) return data;
  if (ArrayBuffer.isView(data)) {
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  }
  throw new TypeError(`a file is written from a string or a typed array, not ${typeof data}`);
}

/** Sizes and offsets are numbers in QuickJS, and bigints in the other engine; the build decides. */
const sized = (number) => (SIZES_ARE_BIGINTS ? BigInt(number) : number);

export function readdir(path, { withFileTypes = false, recursive = false } = {}) {
  const found = [];
  const list = (directory, below) => {
    for (const { type, name } of entriesOf(directory)) {
      const relative = below ? `${below}/${name}` : name;
      const parent = below ? `${textOf(path)}/${below}` : textOf(path);
      found.push(withFileTypes ? new Dirent(name, parent, type) : relative);
      if (recursive && type === "directory") list(`${directory}/${name}`, relative);
    }
  };
  list(textOf(path), "");
  return found;
}

function entriesOf(path) {
  return withFile("scandir", path, { directory: true }, { read: true }, (directory) => {
    const entries = directory.readDirectory();
    try {
      const all = [];
      for (let entry; (entry = entries.readDirectoryEntry());) all.push(entry);
      return all;
    } finally {
      entries[Symbol.dispose]();
    }
  });
}

class Kind {
  #type;

  constructor(type) {
    this.#type = type;
  }

  isFile() {
    return this.#type === "regular-file";
  }

  isDirectory() {
    return this.#type === "directory";
  }

  isSymbolicLink() {
    return this.#type === "symbolic-link";
  }
}

export class Dirent extends Kind {
  constructor(name, parentPath, type) {
    super(type);
    this.name = name;
    this.parentPath = parentPath;
  }
}

export class Stats extends Kind {
  constructor({ type, size, dataAccessTimestamp, dataModificationTimestamp }) {
    super(type);
    this.size = Number(size);
    this.atimeMs = milliseconds(dataAccessTimestamp);
    this.mtimeMs = milliseconds(dataModificationTimestamp);
  }

  get atime() {
    return new Date(this.atimeMs);
  }

  get mtime() {
    return new Date(this.mtimeMs);
  }
}

const milliseconds = (time) => (time ? Number(time.seconds) * 1000 + time.nanoseconds / 1e6 : 0);

export function stat(path) {
  const raw = at("stat", path, (directory, rest) =>
    rest === "." ? directory.stat() : directory.statAt({ symlinkFollow: true }, rest),
  );
  return new Stats(raw);
}

export function access(path) {
  stat(path);
}

export function exists(path) {
  try {
    stat(path);
    return true;
  } catch {
    return false;
  }
}

export function mkdir(path, { recursive = false } = {}) {
  const create = (path) =>
    at("mkdir", path, (directory, rest) => directory.createDirectoryAt(rest));
  if (!recursive) return void create(path);
  const parts = textOf(path).split("/").filter(Boolean);
  let first;
  for (let count = 1; count <= parts.length; count++) {
    const parent = `/${parts.slice(0, count).join("/")}`;
    if (exists(parent)) continue;
    try {
      create(parent);
      first ??= parent;
    } catch (error) {
      // Above the volume there is nothing to create; another job may have been faster.
      const isLast = count === parts.length;
      if (error.code !== "EEXIST" && (isLast || error.code !== "ENOENT")) throw error;
    }
  }
  if (!stat(path).isDirectory()) {
    throw Object.assign(new Error(`EEXIST: file exists, mkdir ${JSON.stringify(path)}`), {
      code: "EEXIST",
    });
  }
  return first;
}

export function rmdir(path) {
  at("rmdir", path, (directory, rest) => directory.removeDirectoryAt(rest));
}

export function unlink(path) {
  at("unlink", path, (directory, rest) => directory.unlinkFileAt(rest));
}

export function rm(path, { recursive = false, force = false } = {}) {
  let found;
  try {
    found = stat(path);
  } catch (error) {
    if (force && error.code === "ENOENT") return;
    throw error;
  }
  if (!found.isDirectory()) return unlink(path);
  if (!recursive) {
    const text = `ERR_FS_EISDIR: ${JSON.stringify(textOf(path))} is a directory: use recursive`;
    throw Object.assign(new Error(text), { code: "ERR_FS_EISDIR" });
  }
  for (const { name } of entriesOf(path)) rm(`${textOf(path)}/${name}`, { recursive, force: true });
  rmdir(path);
}

export function rename(from, to) {
  const target = place("rename", to);
  try {
    at("rename", from, (directory, rest) =>
      directory.renameAt(rest, target.directory, target.rest),
    );
  } finally {
    target.directory[Symbol.dispose]();
  }
}

export function copyFile(from, to) {
  writeFile(to, readFile(from));
}
