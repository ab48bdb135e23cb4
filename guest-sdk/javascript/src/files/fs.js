// `node:fs` for the sandbox: the functions of files.js, and the same as promises.

import * as files from "./files.js";
import promises from "./promises.js";

export {
  access as accessSync,
  appendFile as appendFileSync,
  copyFile as copyFileSync,
  exists as existsSync,
  mkdir as mkdirSync,
  readFile as readFileSync,
  readdir as readdirSync,
  rename as renameSync,
  rm as rmSync,
  rmdir as rmdirSync,
  stat as statSync,
  unlink as unlinkSync,
  writeFile as writeFileSync,
} from "./files.js";

export { promises };

export default {
  promises,
  accessSync: files.access,
  appendFileSync: files.appendFile,
  copyFileSync: files.copyFile,
  existsSync: files.exists,
  mkdirSync: files.mkdir,
  readFileSync: files.readFile,
  readdirSync: files.readdir,
  renameSync: files.rename,
  rmSync: files.rm,
  rmdirSync: files.rmdir,
  statSync: files.stat,
  unlinkSync: files.unlink,
  writeFileSync: files.writeFile,
};
