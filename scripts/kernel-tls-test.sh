#!/usr/bin/env bash
# Boot a Linux whose kernel has TLS, and run the tests of kernel TLS there. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
Usage: scripts/kernel-tls-test.sh [--user-mode] [--memory MB] [--kernel PACKAGE] [-- COMMAND...]

Runs COMMAND, by default the tests of kernel TLS, on another kernel of Debian's, whose module tls is loaded. There it
sees all files of this machine under their names; what it writes is kept in memory, and gone afterwards. It has no
network but loopback. Ends with the status of COMMAND.

The kernel runs in QEMU. Without hardware for that (KVM on vmx or svm), QEMU emulates the processor, and everything
takes tens of times as long.

  --user-mode       run Linux as a program of this machine (User-mode Linux) in place of QEMU. Programs run at full
                    speed then, on one processor. Its kernel encrypts without the processor's instructions for AES.
  --memory MB       its memory, files that are written included [4000]
  --kernel PACKAGE  the package with the kernel [that on which linux-image-amd64 depends]

Examples:
  scripts/kernel-tls-test.sh --user-mode
  scripts/kernel-tls-test.sh -- .venv/bin/python -m benchmarks.tls --no-kafka

It is for Debian on x86-64, and needs the packages busybox-static and qemu-system-x86; as root it installs them by
apt-get. It downloads the package of the kernel once, into ~/.cache/holdfast-kernel-tls (HOLDFAST_KERNEL_CACHE).
END
}

user_mode=false
memory=4000
kernel=
while [[ $# -gt 0 ]]; do
    case $1 in
        --user-mode) user_mode=true ;;
        --memory) memory=${2:?"--memory needs a number of MB"}; shift ;;
        --kernel) kernel=${2:?"--kernel needs the name of a package"}; shift ;;
        -h | --help) usage; exit 0 ;;
        --) shift; break ;;
        *) usage >&2; fail "unknown option: $1" ;;
    esac
    shift
done
if [[ $# -eq 0 ]]; then
    set -- "$(find_python)" -m pytest -q -p no:cacheprovider \
        tests/broker/network/tls/test_kernel.py tests/broker/network/tls/test_wire.py tests/integration/test_kernel_tls.py
    export HOLDFAST_KERNEL_TLS=required
fi

# Find the program $1, or install the package $2 that has it.
need() {
    command -v "$1" >/dev/null && return
    [[ $EUID -eq 0 ]] || fail "$1 was not found. As root: apt-get install --no-install-recommends $2"
    apt-get -qq update >&2
    apt-get -qq install -y --no-install-recommends "$2" >&2 || fail "apt-get could not install $2, which has $1"
}
need busybox busybox-static
if [[ $user_mode == true ]]; then
    kernel=${kernel:-user-mode-linux}
else
    need qemu-system-x86_64 qemu-system-x86
    [[ -n $kernel ]] || kernel=$(apt-cache depends linux-image-amd64 2>/dev/null |
        sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p' | head -n 1)
    [[ -n $kernel ]] || fail "apt-get knows no package linux-image-amd64: run apt-get update, or name one with --kernel"
fi

cache=${HOLDFAST_KERNEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/holdfast-kernel-tls}
tree=$cache/$kernel
if [[ ! -d $tree ]]; then
    mkdir -p "$cache"
    part=$(mktemp -d "$cache/part.XXXXXX")
    (cd "$part" && apt-get -qq download "$kernel" >&2) || { rm -rf "$part"; fail "apt-get could not download $kernel"; }
    dpkg -x "$part/$kernel"_*.deb "$part/tree"
    mv -T "$part/tree" "$tree"
    rm -rf "$part"
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-kernel-tls.XXXXXX")
trap 'rm -rf "$work"' EXIT
if [[ $user_mode == true ]]; then
    image=$tree/usr/bin/linux.uml
    modules=$(echo "$tree"/usr/lib/uml/modules/*)
    mounts="mount -t hostfs -o ro host /lower; mount -t hostfs -o $work/shared shared /shared"
    output=/dev/tty0
else
    image=$(echo "$tree"/boot/vmlinuz-*)
    modules=$(echo "$tree"/lib/modules/*)
    options=trans=virtio,version=9p2000.L,msize=512000
    mounts="mount -t 9p -o ro,cache=loose,$options host /lower; mount -t 9p -o $options shared /shared"
    output=/dev/hvc0
fi
[[ -f $image && -f $modules/kernel/net/tls/tls.ko ]] || fail "$kernel has no kernel with the module tls"

# What the kernel starts: a shell script that loads modules and mounts this machine's files.

root=$work/root
version=$(basename "$modules")
mkdir -p "$root"/{bin,sbin,proc,sys,dev,lower,upper,shared,merged} "$root/lib/modules/$version" "$work/shared" "$work/tmp"
cp "$(command -v busybox)" "$root/bin/busybox"
ln -s /bin/busybox "$root/sbin/modprobe"
cp "$modules"/modules.builtin "$root/lib/modules/$version"
for folder in net/tls net/9p fs/9p fs/netfs fs/fscache fs/overlayfs drivers/virtio drivers/char crypto lib arch/x86/crypto; do
    [[ ! -d $modules/kernel/$folder ]] ||
        (cd "$modules" && cp -r --parents "kernel/$folder" "$root/lib/modules/$version")
done
busybox depmod -b "$root" "$version"

cat >"$root/init" <<END
#!/bin/busybox sh
PATH=/bin:/sbin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in virtio_pci virtio_console 9pnet_virtio 9p overlay tls aesni_intel ghash_clmulni_intel; do
    modprobe "\$module" 2>/dev/null
done
$mounts
mount -t tmpfs -o size=90% tmpfs /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /merged
mount -t proc proc /merged/proc
mount -t sysfs sysfs /merged/sys
mount --bind /dev /merged/dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o size=90% tmpfs /merged/run
mkdir -m 1777 /merged/run/tmp
ip link set lo up
ip addr add 192.0.2.1/32 dev lo  # With 127.0.0.1 alone, resolvers that ask for configured addresses find none.
cp /shared/command /merged/run/command
setsid chroot /merged /bin/bash /run/command </dev/null >$output 2>&1
echo \$? >/shared/status
sync
poweroff -f
END
chmod +x "$root/init"
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initramfs"

{
    for variable in HOME PATH LANG JAVA_HOME "${!HOLDFAST_@}"; do
        [[ -z ${!variable+set} ]] || printf 'export %s=%q\n' "$variable" "${!variable}"
    done
    printf 'export TMPDIR=/run/tmp PYTHONPATH=%q\n' "$HOLDFAST_HOME"
    printf 'cd %q\n' "$HOLDFAST_HOME"
    printf '%q ' "$@"
    printf '\n'
} >"$work/shared/command"

if [[ $user_mode == true ]]; then
    TMPDIR=$work/tmp "$image" "mem=${memory}M" "initrd=$work/initramfs" con0=null,fd:1 con=null console=null quiet \
        </dev/null 2>"$work/kernel.log" || true
else
    accelerated=(-accel 'tcg,thread=multi' -cpu max)
    if [[ -w /dev/kvm ]] && grep -qwE 'vmx|svm' /proc/cpuinfo; then
        accelerated=(-accel kvm -cpu host)
    fi
    qemu-system-x86_64 "${accelerated[@]}" -smp "$(nproc)" -m "$memory" -nodefaults -no-user-config -no-reboot \
        -display none -kernel "$image" -initrd "$work/initramfs" -append "console=ttyS0 panic=-1 quiet" \
        -serial "file:$work/kernel.log" \
        -device virtio-serial-pci -chardev stdio,id=output,signal=off -device virtconsole,chardev=output \
        -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap \
        -device virtio-9p-pci,fsdev=host,mount_tag=host \
        -fsdev "local,id=shared,path=$work/shared,security_model=none" \
        -device virtio-9p-pci,fsdev=shared,mount_tag=shared </dev/null || true
fi
[[ -s $work/shared/status ]] || { tail -n 30 "$work/kernel.log" >&2; fail "the kernel ended before the command did"; }
exit "$(<"$work/shared/status")"
