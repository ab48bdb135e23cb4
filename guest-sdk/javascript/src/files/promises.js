// `node:fs/promises` for the sandbox: the functions of files.js, which wait for the host.

import * as files from "./files.js";

export const access = async (path) => files.access(path);
export const appendFile = async (path, data, options) => files.appendFile(path, data, options);
export const copyFile = async (from, to) => files.copyFile(from, to);
export const mkdir = async (path, options) => files.mkdir(path, options);
export const readFile = async (path, options) => files.readFile(path, options);
export const readdir = async (path, options) => files.readdir(path, options);
export const rename = async (from, to) => files.rename(from, to);
export const rm = async (path, options) => files.rm(path, options);
export const rmdir = async (path) => files.rmdir(path);
export const stat = async (path) => files.stat(path);
export const unlink = async (path) => files.unlink(path);
export const writeFile = async (path, data, options) => files.writeFile(path, data, options);

export default {
  access,
  appendFile,
  copyFile,
  mkdir,
  readFile,
  readdir,
  rename,
  rm,
  rmdir,
  stat,
  unlink,
  writeFile,
};
