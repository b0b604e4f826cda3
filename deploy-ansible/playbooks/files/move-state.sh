# Moves the state of a control plane away. The high-water mark stays: by it, the control plane reports that a restored state is an older copy
# (IM0705). The state itself is moved last, so that a run which was interrupted can be repeated.
# usage: sh move-state.sh FROM TO
set -eu
install --directory --mode=0700 "$2"
for file in "$1"/* "$1"/.[!.]*; do
    [ -e "$file" ] || continue
    case ${file##*/} in
        state.redb) ;;
        high-water) cp -a "$file" "$2/" ;;
        *) mv "$file" "$2/" ;;
    esac
done
mv "$1/state.redb" "$2/"
